"""Faces of the scripts for contracts, wakes and what is due."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from heinzelwerk.generation import ContractEntry, Generation, LoadReply
from heinzelwerk.session import Due
from heinzelwerk.store import face, keys, rules
from heinzelwerk.store.face import Face
from heinzelwerk.store.link import pairs
from heinzelwerk.wake import Acceptance, Disposition, Wake


class Wakes(Face):
    """Loading contracts, accepting wakes, ringing."""

    async def teams(self) -> tuple[str, ...]:
        """The teams that have ever loaded contracts."""
        names = await self._link.command("SMEMBERS", keys.glob(self._options.prefix, "teams"))
        return tuple(sorted(name.decode() for name in names))

    async def load(self, generation: Generation, slots: Mapping[str, int]) -> LoadReply:
        """Make this set the team's newest generation."""
        await self._link.command("SADD", keys.glob(self._options.prefix, "teams"), generation.team)
        operation = self._new_id()
        while True:
            known = await self._get("HGET", generation.team, "generation", "digest")
            old = await self.generation(generation.team)
            number = (old.number if old else 0) + (0 if rules.same(old, generation) else 1)
            reply = rules.compare(old, generation, number)
            answer = await self._load(generation, slots, old, reply, known=(known or b"").decode(), operation=operation)
            if answer >= 0:
                return reply

    async def _load(
        self,
        new: Generation,
        slots: Mapping[str, int],
        old: Generation | None,
        reply: LoadReply,
        *,
        known: str,
        operation: str,
    ) -> int:
        wanted = {entry.sha256 for entry in new.entries.values()} | set(new.skills.values())
        before = ({entry.sha256 for entry in old.entries.values()} | set(old.skills.values())) if old else set()
        entries = [
            (name, int(entry.acts), int(_rescheduled(old, new, name)), slots.get(name))
            for name, entry in new.entries.items()
        ]
        arguments = {
            "op": f"load/{operation}",
            "known": known,
            "same": rules.same(old, new),
            "source": new.source,
            "timezone": new.timezone,
            "skills": json.dumps(new.skills),
            "digest": f"{reply.number}/{operation}",
            "entries": entries,
            "texts": list(new.texts),
            "kept": sorted((wanted & before) - set(new.texts)),
            "dropped": sorted(before - wanted),
            "removed": list(reply.removed),
        }
        documents = [entry.model_dump_json() for entry in new.entries.values()]
        return int((await self._run("load", new.team, arguments, [*documents, *new.texts.values()]))[0])

    async def entries(self, team: str, names: Collection[str] | None = None) -> dict[str, ContractEntry]:
        """The contracts of the newest generation by name, all or those named."""
        if names is None:
            stored = pairs(await self._get("HGETALL", team, "contracts"))
        else:
            asked = sorted(names)
            found = await self._get("HMGET", team, "contracts", *asked) if asked else []
            stored = {name: raw for name, raw in zip(asked, found, strict=True) if raw is not None}
        return {
            name: face.parsed(ContractEntry, raw[2:], f"contract {team}/{name}") for name, raw in sorted(stored.items())
        }

    async def generation(self, team: str) -> Generation | None:
        """The newest generation without its texts."""
        fields = pairs(await self._get("HGETALL", team, "generation"))
        if not fields:
            return None
        return Generation(
            team=team,
            entries=await self.entries(team),
            skills=json.loads(fields["skills"]),
            source=fields["source"].decode(),
            timezone=fields["timezone"].decode(),
            number=int(fields["number"]),
        )

    async def skills(self, team: str) -> dict[str, str]:
        """The skills of the newest generation, as the hashes of their texts."""
        found = await self._get("HGET", team, "generation", "skills")
        return dict(json.loads(found)) if found else {}

    async def text(self, team: str, sha256: str) -> bytes | None:
        """A contract's or skill's text by hash."""
        kept = self._shelf.get(team, sha256)
        if kept is not None:
            return kept
        found: bytes | None = await self._get("GET", team, f"text:{sha256}")
        if found is not None:
            self._shelf.keep(team, sha256, found)
        return found

    async def accept(self, wake: Wake, *, nonce: str) -> Acceptance:
        """Append the wake to its session's inbox and make the session due now."""
        arguments = {"wake": face.wake_entry(wake), "nonce": nonce}
        word, reason, turn = (
            part.decode() for part in await self._run("accept", wake.team, arguments, [face.document(wake)])
        )
        return Acceptance(Disposition(word), face.REASONS.get(reason, reason), int(turn) if turn else None)

    async def fill_slot(
        self, team: str, heinzel: str, *, expected_ms: int, next_ms: int | None, wakes: Sequence[Wake]
    ) -> bool:
        """Accept the wakes of due slots and move the schedule on, if its slot still is `expected_ms`."""
        arguments = {
            "heinzel": heinzel,
            "expected_ms": expected_ms,
            "next_ms": next_ms,
            "wakes": [face.wake_entry(wake) for wake in wakes],
            "op": f"slot/{self._new_id()}",
        }
        reply = await self._run("fill_slot", team, arguments, [face.document(wake) for wake in wakes])
        return int(reply[0]) == 1

    async def due(self, team: str, *, kind: str = "", limit: int = 100) -> tuple[Due, ...]:
        """What is due now, oldest first, without taking it."""
        flat = await self._run("due", team, {"kind": kind, "limit": limit})
        return _entries(team, flat)

    async def ring(self, team: str, *, limit: int = 100) -> tuple[Due, ...]:
        """Take what is due and may run."""
        return _entries(team, await self._run("ring", team, {"limit": limit}))

    async def pause(self, team: str, heinzel: str | None, *, paused: bool) -> None:
        """Pause or resume one Heinzelmännchen or all of a team."""
        await self._get("SADD" if paused else "SREM", team, "paused", heinzel or "")

    async def counters(self, team: str) -> dict[str, int]:
        """Counts that are no events."""
        return {name: int(value) for name, value in pairs(await self._get("HGETALL", team, "counters")).items()}

    async def sessions(self, team: str) -> tuple[str, ...]:
        """The Heinzelmännchen of a team that ever had a wake."""
        return tuple(sorted(name.decode() for name in await self._get("SMEMBERS", team, "sessions")))


def _rescheduled(old: Generation | None, new: Generation, name: str) -> bool:
    if old is None or name not in old.entries:
        return True
    return rules.schedule_of(old, name) != rules.schedule_of(new, name)


def _entries(team: str, flat: Sequence[bytes | int]) -> tuple[Due, ...]:
    found = []
    for at in range(0, len(flat), 3):
        member, score, solo = flat[at : at + 3]
        kind, _, name = member.decode().partition(":") if isinstance(member, bytes) else ("", "", "")
        found.append(Due(kind, team, name, int(float(score)), bool(int(solo))))
    return tuple(found)
