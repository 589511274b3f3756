"""One turn's end and one wake's fate, as people read them."""

from collections.abc import Sequence

from rich.text import Text

from heinzelwerk.client import WakeReply
from heinzelwerk.effect import EffectRecord
from heinzelwerk.mail import PostReply
from heinzelwerk.turn import TurnRecord, TurnState, WaitKind
from heinzelwerk.wake import Disposition
from workers.show import figures
from workers.show.screen import ink, line

_STATES = {
    TurnState.COMPLETED: "green",
    TurnState.SKIPPED: "cyan",
    TurnState.WAITING: "yellow",
    TurnState.RUNNING: "bold",
}


def accepted(reply: WakeReply) -> Text:
    """What the store did with a wake."""
    turn = f", turn {reply.turn}" if reply.turn else ""
    return ink(f"{reply.session}: wake {reply.wake} {reply.disposition} (key {line(reply.key)}){turn}")


def after_wake(reply: WakeReply) -> Text:
    """Where to look after a wake."""
    name = reply.session.rpartition("/")[2]
    if reply.disposition is Disposition.DUPLICATE:
        return ink(f"Nothing new was started: this key was accepted before.\nNext: heinzelwerk log {name}", "dim")
    return ink(f"Next: heinzelwerk log {name}\n      shows the turn; `wake --wait` follows it.", "dim")


def undelivered(reply: PostReply) -> str:
    """Why the store did not take what somebody said to a turn."""
    return reply.posting.value.replace("_", " ") + (f": {reply.detail}" if reply.detail else "")


def ended(turn: TurnRecord) -> Text:
    """Verdict, report, time and cost of a turn in two lines."""
    usage = turn.usage
    cost = figures.money(usage.cost_micros, possible=usage.possible_micros, unpriced=usage.unpriced)
    figures_line = ", ".join(
        filter(
            None,
            (
                figures.counted(usage.requests, "model request"),
                figures.counted(usage.tool_calls, "tool call"),
                figures.tokens(usage.input_tokens, usage.output_tokens),
                cost,
                figures.duration(turn.active_ms),
            ),
        )
    )
    reason = "" if turn.reason in turn.report else turn.reason
    said = " · ".join(line(word) for word in (reason, turn.report) if word)
    return Text.assemble(
        ink(f"turn {turn.number} {turn.state}", _STATES.get(turn.state, "red")), ink(f"  {said}\n  {figures_line}")
    )


def next_steps(turn: TurnRecord, undecided: Sequence[EffectRecord]) -> Text:
    """The command that goes on from here."""
    name = turn.wake.heinzel
    if undecided:
        return ink(
            "\n".join(f"Next: heinzelwerk drafts {effect.id}   then approve or decline it" for effect in undecided)
        )
    if any(item.open and item.kind is WaitKind.QUESTION for item in turn.waits):
        return ink(f'Next: heinzelwerk answer {name} "..."')
    if any(item.open and item.kind is WaitKind.BUDGET for item in turn.waits):
        return ink(f"Next: heinzelwerk answer {name} --raise   or: heinzelwerk stop {name}")
    return ink(f"Next: heinzelwerk log {name} --turn {turn.number}", "dim")
