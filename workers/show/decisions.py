"""Drafts, decisions and the inbox as people read them."""

from collections.abc import Sequence
from datetime import tzinfo

from rich.console import Group, RenderableType
from rich.text import Text

from heinzelwerk import amending
from heinzelwerk import inbox as waiting
from heinzelwerk.effect import Decision, EffectRecord, EffectState, Moved, MoveReply
from workers.show import diffs, figures
from workers.show.screen import ink, line, table

_STATES = {
    EffectState.COMPLETED: "green",
    EffectState.FAILED: "red",
    EffectState.UNKNOWN: "bold yellow",
    EffectState.REFUSED: "yellow",
}


def inbox(items: Sequence[waiting.Item], *, now: int, zone: tzinfo) -> RenderableType:
    """What waits, with the command that ends each wait; an empty inbox says where to look instead."""
    if not items:
        return ink(
            "Nothing waits for you.\nNext: heinzelwerk list\n      shows every Heinzelmännchen and its next wake."
        )
    return Text("\n").join(_waiting(item, now, zone) for item in items)


def _waiting(item: waiting.Item, now: int, zone: tzinfo) -> Text:
    since = f", {figures.away(item.since_ms, now=now)}" if item.since_ms else ""
    until = f", until {figures.instant(item.until_ms, zone)[:16]}" if item.until_ms else ""
    turn = f" turn {item.turn}" if item.turn else ""
    return Text.assemble(
        ink(item.id, "bold"),
        ink(f"  {item.kind.value} of {item.heinzel}{turn}{since}{until}\n    {line(item.what)}\n"),
        ink(f"    {item.next}", "dim"),
    )


def drafts(effects: Sequence[EffectRecord], *, now: int) -> RenderableType:
    """Drafts with where they are; an empty list says how to get one."""
    if not effects:
        return ink(
            "There are no drafts yet.\nNext: heinzelwerk wake NAME --wait\n      starts a turn that may write one."
        )
    return table(
        ("id", "heinzel", "turn", "target", "state", "decision", "made", "note"),
        (
            (
                ink(effect.id, "bold"),
                effect.heinzel,
                str(effect.turn),
                effect.target,
                ink(effect.state.value, _STATES.get(effect.state, "")),
                line(f"{effect.decision.value} {effect.decided_by and f'by {effect.decided_by}'}"),
                figures.away(effect.created_ms, now=now),
                effect.reason,
            )
            for effect in effects
        ),
        right=(2,),
        folds=(3, 7),
    )


def facts(effect: EffectRecord, *, zone: tzinfo) -> Text:
    """One draft's head: where it goes, who decided, how it ended."""
    made = figures.instant(effect.created_ms, zone)
    text = Text.assemble(
        ink(f"draft {effect.id}", "bold"),
        ink(f"  {effect.heinzel}, turn {effect.turn}, output {effect.output}, made {made}\n"),
        ink(f"  goes to  {effect.action} {effect.target}\n"),
        ink(f"  state    {effect.state}, {effect.decision}"),
    )
    if effect.decided_by:
        text.append_text(ink(f" by {effect.decided_by} at {figures.instant(effect.decided_ms, zone)}"))
    if effect.edited:
        text.append_text(ink(", edited while approving"))
    if effect.action == amending.ACTION:
        text.append_text(ink(f"\n  why      {line(effect.arguments.get('reason', ''))}"))
    for word in filter(None, (effect.reason, effect.seen)):
        text.append_text(ink(f"\n  note     {line(word)}"))
    return text


def change(effect: EffectRecord, before: str, text: str) -> RenderableType:
    """What placing the text would change, as a diff."""
    added, removed = diffs.counts(before, text)
    head = ink(f"this would change {effect.target}: {figures.counted(added, 'line')} more, {removed:,} fewer", "bold")
    return Group(head, diffs.unified(before, text, name=effect.target))


def next_steps(effect: EffectRecord) -> Text:
    """How to decide."""
    return ink(f"Next: heinzelwerk approve {effect.id}   (or: decline {effect.id}, approve {effect.id} --edit FILE)")


def decided(effect: EffectRecord, decision: Decision) -> Text:
    """What a decision led to."""
    if decision is Decision.DECLINED:
        return ink(f"{effect.id} declined by {effect.decided_by}: nothing is placed.")
    edited = " with your edits" if effect.edited else ""
    return Text.assemble(
        ink(f"{effect.id} approved by {effect.decided_by}{edited}: a worker places it in {effect.target}.\n"),
        ink(f"Next: heinzelwerk drafts {effect.id}\n      says when it is there.", "dim"),
    )


def amended(effect: EffectRecord, *, written: bool) -> Text:
    """What approving a change of a contract led to: its file is written, or people apply the patch that follows."""
    file = amending.place(effect.heinzel)
    if written:
        return Text.assemble(
            ink(f"{effect.id} approved by {effect.decided_by}: a worker writes {file} in the team's repository.\n"),
            ink(
                "Next: heinzelwerk load\n      makes it act; the upkeep does so by itself where [teams] reload is set.",
                "dim",
            ),
        )
    return ink(
        f"{effect.id} approved by {effect.decided_by}. No file of team {effect.team} can be written here: "
        f"apply this patch in its repository (`git apply`), then load."
    )


def ended(effect: EffectRecord) -> Text:
    """How an effect ended, or that it still has not."""
    style = _STATES.get(effect.state, "yellow")
    if effect.state is EffectState.COMPLETED:
        return ink(f"{effect.id} is placed in {effect.target}.", style)
    why = effect.reason or effect.seen or "no worker has taken it yet: `heinzelwerk doctor` looks why"
    return ink(f"{effect.id} is {effect.state}: {line(why)}", style)


def refusal(reply: MoveReply) -> str:
    """Why a transition was not made, as a sentence."""
    record, moved = reply.record, reply.moved
    name = record.id if record else "this draft"
    if record and moved is Moved.ALREADY_DECIDED:
        who = f" by {record.decided_by}" if record.decided_by else ""
        return f"{name}: already decided{who}: {record.decision}" + (f" ({record.reason})" if record.reason else "")
    if record and moved is Moved.ALREADY_ENDED:
        return f"{name} has ended: {record.state}" + (f" ({record.reason})" if record.reason else "")
    if moved is Moved.DIGEST_DIFFERS:
        return f"{name} changed since it was shown: nothing was decided"
    said = reply.detail or (record.reason if record else "")
    return f"{name}: {moved.value.replace('_', ' ')}" + (f": {said}" if said else "")
