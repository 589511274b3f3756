"""Rules that every body of the store follows, as pure functions: words, small transformations, what may be sealed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from heinzelwerk import ids
from heinzelwerk.commit import Body, NewDraft
from heinzelwerk.effect import EffectRecord
from heinzelwerk.errors import FormatTooNew
from heinzelwerk.generation import Generation, LoadReply
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.session import Hold
from heinzelwerk.turn import TurnRecord
from heinzelwerk.wake import Cause, Wake

FORMAT = 1
"""The store's own format: keys and scripts."""

NO_TEAM = "this team has loaded no contracts: run `heinzelwerk load`"
NO_CONTRACT = "no such contract in the team's newest generation: load it, or check the name"
BROKEN = "the contract has errors and sleeps: `heinzelwerk check` names them"
INBOX_FULL = "the session's inbox is full: wait for its turns, or stop the one that blocks it"
EXPIRED = "expired"
NOT_PUBLISHED = "the contract no longer publishes this"
PUBLISHED_ELSEWHERE = "the contract publishes this to another place now: wake it, and approve the draft for that place"
NEWER_PLACED = "a later turn's text was placed"
WAITS_FOR_PERSON = "it waits for a person: approve or decline it"
POLICY_CHANGED = "the policy no longer lets it go unattended: it waits for a person"
EARLIER_FIRST = "an earlier turn's effect on this target goes first"
TARGET_IN_USE = "another effect writes to this target"
INTERRUPTED = "interrupted"
REFUSED = "refused"
NO_DRAFT = frozenset({"lesson.keep", "contract.amend"})
"""Actions whose text is no draft of an output, though an output may have the same name."""
REASON_CHARS = 300
"""Of a reason for an effect's end this much is kept; it travels as mail and stands on the spine."""

ASKING_MS = 1_500
"""So long a team that found no place at a provider counts as asking for one."""


def flight(hold: Hold) -> str:
    """The name of a holder among a provider's requests in flight; one claim sends one request at a time."""
    return f"{hold.team}/{hold.name}/{hold.token}"


def too_new(found: int, known: int) -> FormatTooNew:
    """The error of a store that a newer release owns."""
    fix = "install the release that the other workers run"
    return FormatTooNew(f"the store has format {found}, this release reads up to {known}: {fix}", fix=fix)


def filled(record: TurnRecord, fills: Mapping[str, str]) -> TurnRecord:
    """The record with the wait items that others have filled."""
    if not fills or not any(item.open and item.id in fills for item in record.waits):
        return record
    waits = tuple(
        item.model_copy(update={"value": fills[item.id]}) if item.open and item.id in fills else item
        for item in record.waits
    )
    return record.model_copy(update={"waits": waits})


def queued(wake: Wake, now_ms: int) -> str:
    """A wake as an inbox keeps it."""
    return f"{now_ms} {wake.model_dump_json(exclude_defaults=True)}"


def steer_of(wake: Wake, turn: int) -> Mail:
    """A message that joins a running turn, as mail."""
    return Mail(id=wake.id, kind=MailKind.STEER, turn=turn, text=wake.text, by=wake.by)


def wake_of(steer: Mail, earlier: Wake) -> Wake:
    """A steer that came after its turn's end, as a wake in the same conversation."""
    return Wake(
        team=earlier.team,
        heinzel=earlier.heinzel,
        key=f"asked/steer/{steer.id}",
        cause=Cause.ASKED,
        text=steer.text,
        by=steer.by,
        channel=earlier.channel,
        conversation=earlier.conversation,
    )


def moved_mail(record: EffectRecord) -> Mail:
    """What an effect's session is told about a transition."""
    data: dict[str, str | int | bool | None] = {
        "effect": record.id,
        "state": record.state.value,
        "decision": record.decision.value,
        "by": record.decided_by or None,
    }
    if record.reason:
        data["reason"] = record.reason
    return Mail(
        id=f"effect/{record.id}/{record.version}",
        kind=MailKind.EFFECT_MOVED,
        turn=record.turn,
        by=record.decided_by or None,
        data=data,
    )


def text_of(effect: EffectRecord, drafts: Iterable[NewDraft], bodies: Iterable[Body]) -> str | None:
    """The text that a planned effect would place, from what its commit carries; None where it is not in there."""
    wanted = effect.text_sha256.removeprefix("sha256:")
    for draft in drafts:
        if ids.digest(draft.text) == wanted:
            return draft.text
    for body in bodies:
        if ids.digest(body.content) == wanted:
            return body.content.decode("utf-8", "surrogatepass")
    return None


def utc_day(now_ms: int) -> str:
    """The UTC day of a server time."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d")


def schedule_of(generation: Generation, name: str) -> tuple[str | None, str]:
    """What decides whether a contract keeps the slot that it had: cron and time zone."""
    entry = generation.entries[name]
    return entry.schedule, entry.timezone or generation.timezone


def compare(old: Generation | None, new: Generation, number: int) -> LoadReply:
    """Which names came, changed and went."""
    before = old.entries if old else {}
    return LoadReply(
        number,
        added=tuple(sorted(set(new.entries) - set(before))),
        changed=tuple(sorted(name for name, entry in new.entries.items() if name in before and before[name] != entry)),
        removed=tuple(sorted(set(before) - set(new.entries))),
    )


def same(old: Generation | None, new: Generation) -> bool:
    """Whether loading `new` would change nothing."""
    return old is not None and (old.entries, old.skills, old.source, old.timezone) == (
        new.entries,
        new.skills,
        new.source,
        new.timezone,
    )


def sealable(lines: Sequence[bytes], ended: Mapping[int, int | None], before_ms: int) -> int:
    """How many lines from the front may be sealed: whole turns that ended before the instant.

    `ended` gives a turn's end by number; a turn that is missing in it ended long ago, None has not ended.
    """
    last_of: dict[int, int] = {}
    turns: list[int | None] = []
    times: list[int] = []
    for index, line in enumerate(lines):
        event = json.loads(line)
        number = int(event["turn"].rpartition("/")[2]) if event.get("turn") else None
        turns.append(number)
        times.append(int(datetime.fromisoformat(event["ts"]).timestamp() * 1000))
        if number is not None:
            last_of[number] = index
    count, reach = 0, -1
    for index, number in enumerate(turns):
        end = times[index] if number is None else ended.get(number, 0)
        if end is None or end >= before_ms or times[index] >= before_ms:
            break
        reach = max(reach, index if number is None else last_of[number])
        if reach == index:
            count = index + 1
    return count


def forgettable(ended: Mapping[int, int | None], before_ms: int) -> list[int]:
    """The turns whose records may go: ended before the instant."""
    return [number for number, end in ended.items() if end is not None and end < before_ms]


def seal_line(last: int, head: str, now_ms: int) -> bytes:
    """The line that stands for the sealed ones, 1 to `last`: its chain place is that of the last line it replaces."""
    stamp = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    document = {
        "v": 1,
        "seq": last,
        "ts": stamp,
        "prev": None,
        "turn": None,
        "kind": "spine.sealed",
        "key": None,
        "data": {"from": 1, "to": last, "count": last, "last": head},
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def is_seal(line: bytes) -> bool:
    """Whether a line stands for sealed ones."""
    return b'"kind":"spine.sealed"' in line and json.loads(line)["kind"] == "spine.sealed"


def sealed_to(line: bytes) -> int:
    """The last sequence number that a seal stands for."""
    return int(json.loads(line)["data"]["to"])
