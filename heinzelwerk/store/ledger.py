"""Faces of the scripts for effects, jobs and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from heinzelwerk import ids
from heinzelwerk.budget import Spent
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply, Which
from heinzelwerk.handoff_job import JobRecord
from heinzelwerk.session import NotClaimed
from heinzelwerk.store import face, rules
from heinzelwerk.store.face import Face
from heinzelwerk.wake import Wake


class Ledger(Face):
    """Effects, jobs, money."""

    async def effect(self, team: str, effect_id: str) -> EffectRecord | None:
        """An effect by id, or by an unambiguous beginning of at least four characters."""
        raw, _ = await self._run("effect", team, {"id": effect_id, "text": False})
        return face.parsed(EffectRecord, raw, f"effect of {team}") if raw else None

    async def effect_text(self, team: str, effect_id: str) -> str | None:
        """The text that the effect would place, or placed."""
        _, text = await self._run("effect", team, {"id": effect_id, "text": True})
        return text.decode() if text else None

    async def effects(self, team: str, which: Which = Which.ALL, *, limit: int = 200) -> tuple[EffectRecord, ...]:
        """Effects of a team, newest first."""
        raws = await self._run("effects", team, {"key": which.value, "limit": limit})
        return tuple(face.parsed(EffectRecord, raw, f"effect of {team}") for raw in raws)

    async def decide(
        self,
        team: str,
        effect_id: str,
        decision: Decision,
        *,
        by: str,
        digest: str,
        text: str | None = None,
        new_digest: str = "",
        wakes: Sequence[Wake] = (),
        reason: str = "",
    ) -> MoveReply:
        """Decide a planned effect; the first decision wins."""
        arguments = {
            "id": effect_id,
            "decision": decision,
            "by": by,
            "digest": digest,
            "edited": text is not None,
            "new_sha": "" if text is None else ids.digest(text),
            "new_digest": new_digest,
            "reason": reason[: rules.REASON_CHARS],
            "wakes": [face.wake_entry(wake) for wake in wakes],
            "op": f"decide/{self._new_id()}",
        }
        blobs = [*([] if text is None else [text]), *(face.document(wake) for wake in wakes)]
        return _moved(await self._run("decide", team, arguments, blobs))

    async def start_effect(
        self, team: str, effect_id: str, *, version: int, timeout_ms: int, margin_ms: int, unattended: bool
    ) -> MoveReply:
        """Consume the approval and begin an attempt."""
        arguments = {
            "id": effect_id,
            "version": version,
            "timeout_ms": timeout_ms,
            "margin_ms": margin_ms,
            "unattended": unattended,
            "op": f"start/{self._new_id()}",
        }
        return _moved(await self._run("start_effect", team, arguments))

    async def close_effect(
        self,
        team: str,
        effect_id: str,
        *,
        version: int,
        to: EffectState,
        reason: str = "",
        revision: str = "",
        seen: str = "",
        retry_in_ms: int = 0,
        wakes: Sequence[Wake] = (),
    ) -> MoveReply:
        """Move a planned, started or unknown effect on."""
        arguments = {
            "id": effect_id,
            "version": version,
            "to": to,
            "reason": reason[: rules.REASON_CHARS],
            "revision": revision,
            "seen": seen,
            "retry_in_ms": retry_in_ms,
            "wakes": [face.wake_entry(wake) for wake in wakes],
            "op": f"close/{self._new_id()}",
        }
        return _moved(await self._run("close_effect", team, arguments, [face.document(wake) for wake in wakes]))

    # -- jobs --------------------------------------------------------------------------------------------------

    async def job(self, team: str, job_id: str) -> JobRecord | None:
        """A handoff job's record."""
        raw = await self._get("GET", team, f"job:{job_id}")
        return face.parsed(JobRecord, raw, f"job {job_id} of {team}") if raw else None

    async def claim_job(self, team: str, job_id: str, *, nonce: str, worker: str) -> tuple[JobRecord, str] | NotClaimed:
        """Take a queued job's lease, once for its life."""
        reply = await self._run("claim_job", team, {"id": job_id, "nonce": nonce, "worker": worker})
        if len(reply) == 1:
            return NotClaimed(reply[0].decode())
        return face.parsed(JobRecord, reply[1], f"job {job_id} of {team}"), reply[2].decode()

    async def close_job(
        self,
        team: str,
        job_id: str,
        *,
        token: str | None,
        status: str,
        cost_micros: int | None,
        bodies: Mapping[str, bytes],
    ) -> bool:
        """End the job, store its bodies, fill the turn's wait item."""
        arguments = {
            "id": job_id,
            "token": token,
            "status": status,
            "cost": cost_micros,
            "names": list(bodies),
            "op": f"job/{self._new_id()}",
        }
        return int((await self._run("close_job", team, arguments, list(bodies.values())))[0]) == 1

    # -- money -------------------------------------------------------------------------------------------------

    async def spent(self, team: str, heinzel: str | None = None, *, day: str | None = None) -> Spent:
        """Money of one UTC day of a team or one session."""
        number = (
            -1
            if day is None
            else (datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)).days
        )
        found = await self._run("spent", team, {"day": number, "scope": f":{heinzel}" if heinzel else ""})
        return Spent(*(int(value or 0) for value in found))


def _moved(reply: Sequence[Any]) -> MoveReply:
    word, record, detail = reply
    return MoveReply(
        Moved(word.decode()), face.parsed(EffectRecord, record, "effect") if record else None, detail.decode()
    )
