"""What waits for a person, by the rules alone."""

from heinzelwerk import inbox
from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.inbox import Waiting


def effect(name: str, *, at: int, state: EffectState = EffectState.FAILED, target: str = "notes:wall") -> EffectRecord:
    return EffectRecord(
        id=name, key=name, team="core", heinzel="page", turn=at, output="page", action="notes.place", target=target,
        text_sha256="", digest="", state=state, created_ms=at,
    )  # fmt: skip


def waiting(*effects: EffectRecord) -> list[tuple[str, Waiting]]:
    undecided = [effect for effect in effects if effect.undecided]
    items = inbox.items(undecided=undecided, recent=reversed(effects), sessions=())
    return [(item.id, item.kind) for item in items]


def test_a_failure_waits_until_there_is_a_newer_draft_for_its_place() -> None:
    """Of failures at one place the newest waits alone; a newer draft, decided or not, takes its place."""
    first, second = effect("first", at=1), effect("second", at=2)
    assert waiting(first, second) == [("second", Waiting.FAILED)]
    assert waiting(first, second, effect("third", at=3, state=EffectState.PLANNED)) == [("third", Waiting.DRAFT)]
    assert waiting(first, second, effect("third", at=3, state=EffectState.COMPLETED)) == []


def test_a_failure_elsewhere_and_an_unknown_end_wait_on() -> None:
    """What was placed at another target says nothing of this one, and only a person who looked closes an unknown end."""
    placed = effect("placed", at=3, state=EffectState.COMPLETED)
    assert waiting(effect("other", at=1, target="notes:door"), placed) == [("other", Waiting.FAILED)]
    assert waiting(effect("unsure", at=1, state=EffectState.UNKNOWN), placed) == [("unsure", Waiting.UNKNOWN)]
