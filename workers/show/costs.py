"""What a day cost, as people read it."""

import re
from collections.abc import Mapping
from datetime import date

from rich.console import Group, RenderableType

from heinzelwerk.budget import Caps, Spent
from heinzelwerk.spending import Asked
from workers.show import figures
from workers.show.screen import ink, table


def is_day(text: str) -> bool:
    """Whether this is a calendar day as YYYY-MM-DD."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def as_table(team: str, day: str, whole: Spent, each: Mapping[str, Spent], caps: Caps) -> RenderableType:
    """The team's day: one row for each Heinzelmännchen that spent, the sum last, caps beside what they cap."""
    rows = [
        (name, *_amounts(spent), _cap(spent, caps.session_day))
        for name, spent in sorted(each.items(), key=lambda pair: -pair[1].spent)
    ]
    total = (f"{team} in all", *_amounts(whole), _cap(whole, caps.team_day))
    grid = table(("heinzel", "spent", "possibly", "put aside", "cap"), [*rows, total], right=(1, 2, 3, 4))
    turn = figures.money(caps.turn) if caps.turn is not None else "no cap"
    return Group(ink(f"costs of {team}, {day}; one turn at most {turn}", "bold"), grid)


def by_model(each: Mapping[str, Mapping[str, Asked]]) -> RenderableType:
    """The same day by Heinzelmännchen and model, the dearest first."""
    rows = [(name, model, asked) for name, models in each.items() for model, asked in models.items()]
    rows.sort(key=lambda row: (-row[2].spent, row[0], row[1]))
    return table(
        ("heinzel", "model", "requests", "tokens", "spent", "possibly"),
        (
            (
                name,
                model,
                f"{asked.requests:,}",
                figures.tokens(asked.input_tokens, asked.output_tokens),
                figures.money(asked.spent),
                figures.money(asked.possible),
            )
            for name, model, asked in rows
        ),
        right=(2, 3, 4, 5),
        folds=(1,),
    )


def _amounts(spent: Spent) -> tuple[str, str, str]:
    return figures.money(spent.spent), figures.money(spent.possible), figures.money(spent.reserved)


def _cap(spent: Spent, cap: int | None) -> str:
    if cap is None:
        return "none"
    used = spent.spent + spent.possible + spent.reserved
    return f"{figures.money(cap)} ({used / cap:.0%})" if cap else figures.money(cap)
