"""What a request costs: a quote is found before anything is sent, and counts the same way before and after.

The order is the deployment's own table, then what the provider or gateway reports, then the published list; a gateway
never inherits a vendor's price. Sources: ADR 0050 statement 5, design section 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import genai_prices
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from heinzelwerk import budget, ids

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens; a cached price that is not given is the input's."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class Quote(Protocol):
    """The price of one model, ready to count with."""

    @property
    def source(self) -> str:
        """Where the price is from: `configured`, `free` or `list`."""

    def micros(self, usage: RequestUsage) -> int | None:
        """Micro-dollars of this usage, rounded up; None where it cannot be computed."""


@dataclass(frozen=True, slots=True)
class TableQuote:
    """A price that the deployment set, or a free model's."""

    price: Price
    source: str = "configured"

    def micros(self, usage: RequestUsage) -> int | None:
        """Linear in tokens; cached tokens are a part of the input's count."""
        if usage.unmeasured_requests and self.source != "free":
            return None
        price = self.price
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = max(usage.input_tokens - read - write, 0)
        read_price = price.input if price.cache_read is None else price.cache_read
        write_price = price.input if price.cache_write is None else price.cache_write
        total = fresh * price.input + usage.output_tokens * price.output + read * read_price + write * write_price
        return budget.micros(total / _MILLION)


@dataclass(frozen=True, slots=True)
class ListQuote:
    """The published price of a vendor's own endpoint."""

    model_name: str
    provider: str
    source: str = "list"

    def micros(self, usage: RequestUsage) -> int | None:
        """By the list's own tiers and rules; None where the list cannot count this usage."""
        if usage.unmeasured_requests:
            return None
        try:
            price = genai_prices.calc_price(usage, self.model_name, provider_id=self.provider)
        except (LookupError, ValueError):
            return None
        return budget.micros(price.total_price)


FREE = TableQuote(Price(Decimal(0), Decimal(0)), "free")


def quote(name: str, model: Model, table: Mapping[str, Price], *, gateway: bool) -> Quote | None:
    """The quote for a model string, or None: then it must not run. A gateway's model is priced by the table alone."""
    if name in table:
        return TableQuote(table[name])
    if gateway:
        return None
    listed = ListQuote(model.model_name, model.system)
    return listed if listed.micros(RequestUsage(input_tokens=1000, output_tokens=1000)) is not None else None


def cost(found: Quote, usage: RequestUsage) -> int | None:
    """What a finished request cost: the table first, then what the provider reported, then the list.

    A reported cost stands in `usage.cost`; see `reported`.
    """
    if not isinstance(found, ListQuote):
        return found.micros(usage)
    if usage.cost is not None:
        return budget.micros(usage.cost)
    return found.micros(usage)


def reported(response: ModelResponse) -> Decimal | None:
    """What the provider or gateway says that a response cost, in dollars; None where it says nothing.

    The library fills `usage.cost` for its own gateway alone. OpenRouter's figure stands in the provider's details; with a
    key of one's own at the vendor it is the fee, and the vendor's own price comes on top.
    """
    if response.usage.cost is not None:
        return response.usage.cost
    details = response.provider_details or {}
    cost = _dollars(details.get("cost"))
    if cost is None or not details.get("is_byok"):
        return cost
    upstream = _dollars(details.get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _dollars(value: object) -> Decimal | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        return None
    return Decimal(str(value))


def affordable_output(found: Quote, *, input_tokens: int, micros: int, wanted: int) -> int:
    """How many output tokens, at most `wanted`, this many micro-dollars buy behind an input of that length."""
    base = found.micros(RequestUsage(input_tokens=input_tokens)) or 0
    step = (found.micros(RequestUsage(input_tokens=input_tokens, output_tokens=wanted)) or 0) - base
    if step <= 0 or base + step <= micros:
        return wanted
    return max((micros - base) * wanted // step, 0)


def table_digest(table: Mapping[str, Price]) -> str:
    """The hash that a turn pins its prices by; it names the list's release too."""
    lines = [f"{n} {p.input} {p.output} {p.cache_read} {p.cache_write}" for n, p in sorted(table.items())]
    return ids.digest("\n".join([genai_prices.__version__, *lines]))
