from datetime import UTC, datetime

import pytest

from heinzelwerk.effect import EffectRecord, EffectState
from heinzelwerk.generation import ContractEntry
from heinzelwerk.ids import SessionId
from heinzelwerk.session import Due, Overview
from heinzelwerk.turn import TurnRecord, TurnState, WaitItem, WaitKind
from heinzelwerk.wake import Cause, Wake
from workers import doctor
from workers.doctor import Finding, Level

NOW = 1_800_000_000_000
GOOD = {
    "redis_version": "7.2.4",
    "valkey_version": "9.1.2",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "maxmemory": "0",
    "clock_ms": str(NOW),
}


def stored(**changed: str) -> list[Finding]:
    return doctor.store(
        GOOD | {name.replace("_policy", "-policy"): value for name, value in changed.items()},
        appendfsync="always",
        here_ms=NOW,
    )


def test_a_good_server_is_one_line() -> None:
    """Nothing is wrong: one finding, which names the server."""
    (found,) = stored()
    assert (found.level, found.fix) == (Level.OK, "")
    assert "Valkey 9.1.2" in found.what


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"redis_version": "6.0.16"}, Level.DOWN, "older than 6.2"),
        ({"maxmemory_policy": "allkeys-lru"}, Level.DOWN, "allkeys-lru"),
        ({"appendonly": "no"}, Level.DOWN, "append-only"),
        ({"aof_enabled": "0"}, Level.DOWN, "append-only"),
        ({"appendfsync": "everysec"}, Level.WARN, "up to two seconds"),
        ({"appendfsync": "no"}, Level.WARN, "half a minute"),
        ({"maxmemory": "1000", "used_memory": "900"}, Level.WARN, "90%"),
        ({"clock_ms": str(NOW + 90_000)}, Level.WARN, "90.0 s apart"),
    ],
)
def test_each_trouble_of_a_server_has_its_finding_and_its_fix(
    changed: dict[str, str], level: Level, words: str
) -> None:
    """Version, eviction, durability, memory and clock: each is named with what to do."""
    (found,) = stored(**changed)
    assert found.level is level
    assert words in found.what
    assert found.fix


def test_everysec_is_fine_where_the_operator_chose_it_and_says_what_it_means() -> None:
    """A weaker durability is not hidden even where it is configured."""
    found = doctor.store(GOOD | {"appendfsync": "everysec"}, appendfsync="everysec", here_ms=NOW)
    assert [one.level for one in found] == [Level.OK]
    assert "power loss" in found[0].what


def beat(profile: str, **facts: str) -> dict[str, str]:
    clock = datetime.fromtimestamp(NOW / 1000, UTC).isoformat()
    return {"profile": profile, "version": "1", "clock": clock, "host": "a", **facts}


def levels(found: list[Finding]) -> list[Level]:
    return [one.level for one in found]


def test_a_deployment_without_turn_workers_is_down() -> None:
    """Wakes are kept and nothing runs: that is down, with the command that starts one."""
    (found,) = doctor.workers({"b": beat("upkeep")}, here="1", now_ms=NOW)
    assert found.level is Level.DOWN
    assert "heinzelwerk worker turns" in found.fix


def test_a_deployment_without_upkeep_places_nothing_and_is_down() -> None:
    """Turn workers alone draft and never place."""
    assert Level.DOWN in levels(doctor.workers({"a": beat("turns")}, here="1", now_ms=NOW))
    assert levels(doctor.workers({"a": beat("all")}, here="1", now_ms=NOW)) == [Level.OK]


def test_without_a_solo_worker_there_is_a_warning() -> None:
    """Turns that killed workers wait for one for a while: the doctor names what to start."""
    found = doctor.workers({"a": beat("turns"), "b": beat("upkeep")}, here="1", now_ms=NOW)
    assert levels(found) == [Level.OK, Level.WARN]
    assert found[1].fix == "`heinzelwerk worker solo`"


def test_versions_and_clocks_that_differ_are_warnings() -> None:
    """A deploy that is not finished, and a machine whose clock runs away."""
    ahead = datetime.fromtimestamp(NOW / 1000 + 30, UTC).isoformat()
    behind = datetime.fromtimestamp(NOW / 1000 - 30, UTC).isoformat()
    beats = {
        "a": beat("turns"),
        "b": beat("upkeep", version="2"),
        "c": beat("solo", clock=ahead),
        "d": beat("solo", clock=behind),
    }
    found = doctor.workers(beats, here="1", now_ms=NOW)
    assert levels(found) == [Level.OK, Level.WARN, Level.WARN]
    assert "versions differ" in found[1].what
    assert "clock of c" in found[2].what  # d's beat may simply be half a minute old


def seen(**changed: object) -> Overview:
    values: dict[str, object] = {
        "session": SessionId("core", "page"),
        "last_turn": 1,
        "seq": 1,
        "turns": (),
        "inbox": (),
        "mail": 0,
        "paused": False,
        "held": False,
        "due_ms": None,
        "next_slot_ms": None,
        "dead_claims": 0,
        "memo": {},
    }
    return Overview(**{**values, **changed})  # type: ignore[arg-type]


def waiting(deadline_ms: int) -> TurnRecord:
    return TurnRecord(
        number=1,
        state=TurnState.WAITING,
        wake=Wake(team="core", heinzel="page", key="manual/1", cause=Cause.MANUAL),
        accepted_ms=1,
        as_of_ms=1,
        started_ms=1,
        waits=(WaitItem(id="question", kind=WaitKind.QUESTION, deadline_ms=deadline_ms),),
    )


def test_overdue_quarantined_and_stuck_ones_are_found() -> None:
    """A slot that nobody filled and a damaged spine are down; poison and a late wait are warnings; a pause is fine."""
    late = NOW - 600_000
    found = doctor.sessions(
        [
            seen(next_slot_ms=late),
            seen(next_slot_ms=late, paused=True),
            seen(memo={"quarantine": "spine line 3: why"}),
            seen(dead_claims=4),
            seen(turns=(waiting(late),)),
            seen(turns=(waiting(NOW + 1),), next_slot_ms=NOW + 1),
        ],
        now_ms=NOW,
    )
    assert [(one.level, one.area) for one in found] == [
        (Level.DOWN, "overdue"),
        (Level.DOWN, "quarantined"),
        (Level.WARN, "quarantined"),
        (Level.WARN, "waits"),
    ]
    assert all(one.fix for one in found)


def test_broken_contracts_unknown_effects_and_old_queues_have_their_fix() -> None:
    """Each says where it is and what to type."""
    entry = ContractEntry(name="page", sha256="sha256:0", broken=("page.prose.md:3 HZC002 hz.title missing",))
    unknown = EffectRecord(
        id="abc", key="k", team="core", heinzel="page", turn=1, output="page", action="a", target="t", text_sha256="", digest="",
        state=EffectState.UNKNOWN,
    )  # fmt: skip
    found = [
        *doctor.contracts("core", {"page": entry}),
        *doctor.contracts("empty", {}),
        *doctor.effects("core", [unknown, unknown.model_copy(update={"state": EffectState.COMPLETED})]),
        *doctor.queues(
            "core", [Due("session", "core", "page", NOW - 600_000), Due("session", "core", "x", NOW)], now_ms=NOW
        ),
        *doctor.drained("on"),
        *doctor.drained(None),
    ]
    assert "page.prose.md:3" in found[0].what
    assert "heinzelwerk resolve abc" in found[2].fix
    assert "1 due entries" in found[3].what
    assert len(found) == 5
    assert all(one.fix for one in found)
    assert not doctor.is_down(found)


@pytest.mark.parametrize(("profiles", "said"), [(["turns", "handoffs"], 0), (["all"], 0), (["turns", "upkeep"], 1)])
def test_somebody_must_start_the_coding_agents(profiles: list[str], said: int) -> None:
    """Where agents are set up and no handoff worker lives, the finding names the command."""
    found = doctor.handoff_workers({name: {"profile": name} for name in profiles})
    assert len(found) == said
    assert all("worker handoffs" in finding.fix for finding in found)
