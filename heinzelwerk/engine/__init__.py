"""The turn engine: one Pydantic AI run per turn, checkpointed step by step (ADR 0050)."""

from heinzelwerk.engine.models import Models, ModelSettings
from heinzelwerk.engine.prices import Price
from heinzelwerk.engine.run import PydanticEngine
from heinzelwerk.engine.tools import Operation

__all__ = ["ModelSettings", "Models", "Operation", "Price", "PydanticEngine"]
