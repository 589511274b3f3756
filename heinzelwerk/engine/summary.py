"""Summing up old turns: one priced request to the fast model, only where their lines outgrow their budget.

It is a help and no condition: where the fast model does not answer, the turn goes on with what fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.models import ModelRequestParameters

from heinzelwerk.ending import Failed, Parked, Tail
from heinzelwerk.engine import context, messages
from heinzelwerk.engine.leave import Leave
from heinzelwerk.engine.metered import MeteredModel
from heinzelwerk.engine.segment import Segment
from heinzelwerk.opening import EarlierTurn


async def summarise(segment: Segment, model: MeteredModel, turns: Sequence[EarlierTurn]) -> str:
    """What these turns did, in a few sentences; "" where the model would not say. Leaves where the segment must end."""
    asked = messages.prompt(context.to_summarise(turns))
    try:
        response = await model.request([asked], None, ModelRequestParameters())
    except Leave as leave:
        if isinstance(leave.ending(Tail(segment.turn)), Failed | Parked):
            await segment.withdraw()
            return ""
        raise
    words = (response.text or "").strip()
    segment.adopt(response, purpose="summary", words=words)
    return words
