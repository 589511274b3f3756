"""Faces of the scripts for a session under its lease, and for its readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heinzelwerk import ids
from heinzelwerk.budget import Reservation
from heinzelwerk.commit import After, Commit, CommitReply, CommitState
from heinzelwerk.event import Chain
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind, Posting, PostReply
from heinzelwerk.session import Hold, NotClaimed, Overview, Snapshot
from heinzelwerk.store import face, rules
from heinzelwerk.store.face import Face
from heinzelwerk.store.link import Call, pairs
from heinzelwerk.turn import CallRecord, TurnRecord
from heinzelwerk.wake import Cause, QueuedWake, Wake


class Sessions(Face):
    """Claim, renew, commit, release, mail, and reading."""

    async def claim(self, session: SessionId, *, nonce: str, solo: bool = True) -> Snapshot | NotClaimed:
        """Take the session's lease and read all that `advance` needs."""
        reply = await self._run("claim", session.team, {"heinzel": session.heinzel, "nonce": nonce, "solo": solo})
        return NotClaimed(reply[0].decode()) if len(reply) == 1 else _snapshot(session, reply)

    async def renew(self, holds: Sequence[Hold]) -> tuple[Hold, ...]:
        """Extend these leases; answers those that were lost."""
        groups = by_team(holds)
        replies = (
            await self._link.run_all([self._renewal(team, group) for team, group in groups.items()]) if groups else []
        )
        return lost_of(groups.values(), replies)

    async def end_leases(self, holds: Sequence[Hold]) -> int:
        """End these leases now: their holder is dead."""
        groups = by_team(holds)
        calls = [self._call("end_leases", team, named(group)) for team, group in groups.items()]
        return sum(int(ended) for ended in await self._link.run_all(calls)) if calls else 0

    def _renewal(self, team: str, holds: Sequence[Hold]) -> Call:
        return self._call("renew", team, named(holds))

    async def commit(self, session: SessionId, token: str, commit: Commit) -> CommitReply:
        """Write everything in the commit, or nothing."""
        arguments, blobs = _arguments(commit)
        arguments |= {"heinzel": session.heinzel, "token": token}
        state, now, over, *mail = await self._run("commit", session.team, arguments, blobs)
        return CommitReply(CommitState(state.decode()), int(now), over.decode(), int(mail[0]) if mail else 0)

    async def release(
        self, session: SessionId, token: str, *, handed_back: bool, due_ms: int | None, holds_session: bool
    ) -> bool:
        """Give the lease up without a commit."""
        arguments = {
            "heinzel": session.heinzel,
            "token": token,
            "handed_back": handed_back,
            "due_ms": due_ms,
            "holds": holds_session,
        }
        return int(await self._run("release", session.team, arguments)) == 1

    async def quarantine(self, session: SessionId, why: str | None, *, token: str | None = None) -> bool:
        """Set a session with a damaged spine aside, or (no reason) lift that."""
        arguments = {"heinzel": session.heinzel, "why": why, "token": token}
        return int(await self._run("quarantine", session.team, arguments)) == 1

    async def urgent(self, sessions: Sequence[SessionId]) -> dict[SessionId, tuple[Mail, ...]]:
        """The unread stops and steers of sessions that this process runs."""
        teams: dict[str, list[SessionId]] = {}
        for session in sessions:
            teams.setdefault(session.team, []).append(session)
        calls = [
            self._call("urgent", team, {"heinzels": [one.heinzel for one in group]}) for team, group in teams.items()
        ]
        replies = await self._link.run_all(calls) if calls else []
        asked = [session for group in teams.values() for session in group]
        boxes = [box for reply in replies for box in reply]
        return {session: _mail(box) for session, box in zip(asked, boxes, strict=True) if box}

    async def post(self, session: SessionId, mail: Mail) -> PostReply:
        """Deliver mail, fill the wait item that it names, and make the session due."""
        arguments: dict[str, Any] = {
            "heinzel": session.heinzel,
            "kind": mail.kind,
            "turn": mail.turn,
            "fills": mail.fills,
            "value": mail.value,
            "op": f"post/{session.heinzel}/{mail.id}",
        }
        blobs = [mail.model_dump_json(exclude_defaults=True)]
        if mail.kind is MailKind.STEER:
            late = rules.wake_of(mail, Wake(team=session.team, heinzel=session.heinzel, key="late", cause=Cause.ASKED))
            arguments["wake_id"] = late.id
            blobs.append(face.document(late))
        posting, detail = (part.decode() for part in await self._run("post", session.team, arguments, blobs))
        return PostReply(Posting(posting), face.REASONS.get(detail, detail))

    # -- reading -----------------------------------------------------------------------------------------------

    async def overview(self, session: SessionId) -> Overview | None:
        """A session for readers."""
        reply = await self._run("overview", session.team, {"heinzel": session.heinzel})
        if not reply:
            return None
        seen = _snapshot(session, reply[0])
        return Overview(
            session=session,
            last_turn=seen.last_turn,
            seq=seen.chain.seq,
            turns=seen.turns,
            inbox=seen.inbox,
            mail=len(seen.mail),
            paused=seen.paused,
            held=bool(int(reply[1])),
            due_ms=int(float(reply[2])) if reply[2] else None,
            next_slot_ms=int(float(reply[3])) if reply[3] else None,
            dead_claims=seen.dead_claims,
            memo=seen.memo,
            head=seen.chain.head,
            last=seen.last,
        )

    async def turn(self, session: SessionId, number: int) -> TurnRecord | None:
        """A turn's record, also after its end."""
        found = await self._turns(session, [number])
        return found[0] if found else None

    async def turns(self, session: SessionId, *, before: int, limit: int = 50) -> tuple[TurnRecord, ...]:
        """The records of earlier turns, newest first."""
        return await self._turns(session, list(range(before - 1, max(0, before - 1 - limit), -1)))

    async def _turns(self, session: SessionId, numbers: Sequence[int]) -> tuple[TurnRecord, ...]:
        raws, fills = await self._run("turns", session.team, {"heinzel": session.heinzel, "numbers": list(numbers)})
        return tuple(face.read_turn(raw, pairs(flat)) for raw, flat in zip(raws, fills, strict=True))

    async def spine(self, session: SessionId, *, after: int = 0, limit: int = 10_000) -> tuple[bytes, ...]:
        """Spine lines with a sequence number over `after`; a seal stands for those that prune took away."""
        return tuple(
            await self._run("spine", session.team, {"heinzel": session.heinzel, "after": after, "limit": limit})
        )

    async def unread_mail(self, session: SessionId) -> tuple[Mail, ...]:
        """Mail that no commit has taken yet."""
        return _mail(await self._get("LRANGE", session.team, f"s:{session.heinzel}:mail", 0, -1))

    async def body(self, session: SessionId, turn: int, name: str) -> bytes | None:
        """An entry of a turn's body."""
        found: bytes | None = await self._get("HGET", session.team, f"s:{session.heinzel}:body:{turn}", name)
        return found

    async def body_names(self, session: SessionId, turn: int) -> tuple[str, ...]:
        """The names of the entries of a turn's body."""
        return tuple(
            sorted(name.decode() for name in await self._get("HKEYS", session.team, f"s:{session.heinzel}:body:{turn}"))
        )

    async def history(self, session: SessionId, turn: int) -> tuple[bytes, ...]:
        """The stored messages of a turn."""
        return tuple(await self._get("LRANGE", session.team, f"s:{session.heinzel}:history:{turn}", 0, -1))

    async def calls(self, session: SessionId, turn: int) -> dict[str, CallRecord]:
        """The call ledger of a turn."""
        stored = pairs(await self._get("HGETALL", session.team, f"s:{session.heinzel}:calls:{turn}"))
        return {key: face.parsed(CallRecord, raw, f"call ledger of {session}") for key, raw in stored.items()}

    async def draft(self, session: SessionId, output: str, *, approved: bool) -> tuple[int, str] | None:
        """The newest, or the last approved, text of an output with its turn's number."""
        field = f"{'a' if approved else 'n'}:{output}"
        raw: bytes | None = await self._get("HGET", session.team, f"s:{session.heinzel}:drafts", field)
        if raw is None:
            return None
        turn, _, text = raw.decode().split(" ", 2)
        return int(turn), text


def by_team(holds: Sequence[Hold]) -> dict[str, list[Hold]]:
    """Holds grouped for one call per team."""
    groups: dict[str, list[Hold]] = {}
    for hold in holds:
        groups.setdefault(hold.team, []).append(hold)
    return groups


def named(holds: Sequence[Hold]) -> dict[str, Any]:
    """One team's holds as a script reads them."""
    return {"holds": [(hold.kind, hold.name, hold.token) for hold in holds]}


def lost_of(groups: Any, replies: Sequence[Sequence[int]]) -> tuple[Hold, ...]:
    """The holds that the server named as lost."""
    return tuple(group[place - 1] for group, lost in zip(groups, replies, strict=True) for place in lost)


def _mail(raws: Sequence[bytes]) -> tuple[Mail, ...]:
    return tuple(face.parsed(Mail, raw, "mail") for raw in raws)


def _queued(raw: str, session: SessionId) -> QueuedWake:
    accepted, _, document = raw.partition(" ")
    return QueuedWake(face.parsed(Wake, document, f"inbox of {session}"), int(accepted), raw)


def _snapshot(session: SessionId, reply: Sequence[Any]) -> Snapshot:
    _, token, now, seq, head, dead, last_turn, turns, fills, inbox, mail, entry, generation, paused, memo, last = reply
    return Snapshot(
        session=session,
        token=token.decode(),
        now_ms=int(now),
        chain=Chain(int(seq), head.decode() or None),
        dead_claims=int(dead),
        last_turn=int(last_turn),
        turns=tuple(face.read_turn(raw, pairs(flat)) for raw, flat in zip(turns, fills, strict=True)),
        inbox=tuple(_queued(raw.decode(), session) for raw in inbox),
        mail=_mail(mail),
        entry=face.parsed(ContractEntry, entry[2:], f"contract of {session}") if entry else None,
        generation=int(generation),
        paused=bool(int(paused)),
        memo={name: value.decode() for name, value in pairs(memo).items()},
        last=last,
    )


def _arguments(commit: Commit) -> tuple[dict[str, Any], list[str | bytes]]:
    """A commit as the script takes it: small facts as JSON, contents in the order in which commit.lua takes them."""
    arguments: dict[str, Any] = {
        "op": commit.op,
        "seq": commit.expected_seq,
        "lines": len(commit.lines),
        "head": commit.head,
        "progress": commit.progress,
        "turns": [(turn.number, int(turn.state.ended)) for turn in commit.turns],
        "new_turns": commit.new_turns,
        "taken": [(taken.wake_id, taken.turn, taken.verdict) for taken in commit.taken_wakes] or None,
        "ended": list(commit.ended_wakes) or None,
        "returned": [wake.id for wake in commit.returned_wakes] or None,
        "mail": commit.mail_taken,
        "bodies": [(body.turn, body.name) for body in commit.bodies] or None,
        "histories": [(one.turn, one.keep, len(one.items)) for one in commit.histories] or None,
        "calls": [(one.turn, one.key) for one in commit.calls] or None,
        "late": _late(commit) or None,
        "settle": [(one.id, one.amount, one.possible) for one in commit.settle] or None,
        "reserve": _reservation(commit.reserve),
        "drafts": [(draft.output, draft.turn, ids.digest(draft.text)) for draft in commit.drafts] or None,
        "effects": len(commit.effects) or None,
        "jobs": len(commit.jobs) or None,
        "job_caps": [commit.job_caps.session_day, commit.job_caps.team_day] if commit.jobs else None,
        "memo": [part for pair in commit.memo.items() for part in pair] or None,
        "wakes": [face.wake_entry(wake) for wake in commit.wakes] or None,
        "expire": list(commit.expire_bodies) or None,
        "after": None if commit.after is After.KEEP else commit.after,
        "due_ms": commit.due_ms,
        "holds": commit.holds_session,
    }
    return arguments, _contents(commit)


def _contents(commit: Commit) -> list[str | bytes]:
    contents: list[str | bytes] = [*commit.lines]
    contents += [turn.model_dump_json() for turn in commit.turns]
    contents += [taken.raw for taken in commit.taken_wakes]
    contents += [face.document(wake) for wake in reversed(commit.returned_wakes)]
    contents += [body.content for body in commit.bodies]
    contents += [item for history in commit.histories for item in history.items]
    contents += [one.record for one in commit.calls]
    contents += [draft.text for draft in commit.drafts]
    for effect in commit.effects:
        contents += [effect.model_dump_json(), rules.text_of(effect, commit.drafts, commit.bodies) or ""]
    contents += [job.model_dump_json() for job in commit.jobs]
    contents += [face.document(wake) for wake in commit.wakes]
    return contents


def _late(commit: Commit) -> list[int]:
    """Turns that get words although this commit does not store them: their retention may have begun."""
    touched = (
        {one.turn for one in commit.bodies}
        | {one.turn for one in commit.histories}
        | {one.turn for one in commit.calls}
    )
    return sorted(touched - {turn.number for turn in commit.turns})


def _reservation(reserve: Reservation | None) -> dict[str, Any] | None:
    if reserve is None:
        return None
    caps = reserve.caps
    return {
        "id": reserve.id,
        "amount": reserve.amount,
        "ttl_ms": reserve.ttl_ms,
        "session_day": caps.session_day,
        "team_day": caps.team_day,
    }
