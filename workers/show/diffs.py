"""Two texts as a unified diff."""

import difflib

from rich.text import Text

from workers.show.screen import ink

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def lines(before: str, after: str, *, name: str, context: int = 3) -> list[str]:
    """The difference as `diff -u` writes it, line by line; empty where there is none."""
    heads = f"{name} (before)", f"{name} (after)"
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), *heads, n=context, lineterm=""))


def unified(before: str, after: str, *, name: str, context: int = 3) -> Text:
    """The difference for a terminal, added lines green and removed ones red; one sentence where there is none."""
    found = lines(before, after, name=name, context=context)
    if not found:
        return ink(f"{name}: no difference", "dim")
    text = Text()
    for number, entry in enumerate(found):
        style = "bold" if number < 2 else _STYLES.get(entry[:1], "")
        text.append_text(ink(entry, style))
        if number + 1 < len(found):
            text.append("\n")
    return text


def counts(before: str, after: str) -> tuple[int, int]:
    """Lines added and removed."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    moves = [move for move in matcher.get_opcodes() if move[0] != "equal"]
    return sum(end - start for *_, start, end in moves), sum(end - start for _, start, end, *_ in moves)
