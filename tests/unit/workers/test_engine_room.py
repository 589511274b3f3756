"""What the engines of one process share, and what the doctor says of every model that is configured."""

from __future__ import annotations

import pytest
from pydantic_ai.models.function import FunctionModel

from config.settings import Settings
from heinzelwerk.ports import Policy
from workers import examining
from workers.clock import SystemClock, UlidIds
from workers.doctor import Level
from workers.engine import EngineRoom

FACTORIES = {"double": lambda name: FunctionModel(lambda messages, info: None, model_name=name)}


def test_the_teams_of_a_process_share_what_it_knows_of_a_provider() -> None:
    """Five failures of one team's turns hold back the other team's: it is the same provider."""
    settings = Settings(heinzel={"model": "double:m", "prices": {"double:m": {"input": 1, "output": 1}}})
    room = EngineRoom(settings, capabilities={}, clock=SystemClock(), ids=UlidIds(), factories=FACTORIES)
    one, other = room.engine(Policy()), room.engine(Policy(turns_an_hour=1))
    model = room.models.model("double:m")
    for second in range(5):
        one.circuit(model).failed(float(second))
    assert other.circuit(model).blocked_s(5.0) > 0


def test_the_doctor_says_of_every_configured_model_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model, the fast one, the fallback and the classes: a missing key, a missing price, an unknown prefix, each with
    its fix; only the model itself stops everything."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(
        heinzel={
            "model": "anthropic:claude-sonnet-4-5",
            "model_fast": "anthropic:no-such-model",
            "fallback": "openai:gpt-4.1",
            "classes": {"best": "nonsense:m"},
        },
        keys={"ANTHROPIC_API_KEY": "k"},
    )
    fine, unpriced, keyless, unknown = examining.models(settings)
    assert (fine.level, "priced" in fine.what) == (Level.OK, True)
    assert (unpriced.level, "no price" in unpriced.what, "[heinzel.prices]" in unpriced.fix) == (Level.WARN, True, True)
    assert (keyless.level, "OPENAI_API_KEY" in keyless.what) == (Level.WARN, True)
    assert (unknown.level, "nonsense" in unknown.what, "anthropic" in unknown.fix) == (Level.WARN, True, True)
