"""Rules for text that comes from outside: what is deleted, what is redacted, how it is cut.

The order that works is clean, then redact, then cut: a removed character can hide an address from the pattern, and a
cut one no longer looks like an address. `safe` does the first two, `clean_line` and `bounded` all three.
"""

import re

_DELETED_RANGES = (
    (0x0000, 0x0008),  # C0 without tab and line feed; the carriage return goes too
    (0x000B, 0x001F),
    (0x007F, 0x009F),  # DEL and C1
    (0x061C, 0x061C),  # Arabic letter mark
    (0x200B, 0x200B),  # zero-width space
    (0x200E, 0x200F),  # left-to-right and right-to-left mark
    (0x2028, 0x202E),  # line and paragraph separator, bidirectional embeddings and overrides
    (0x2060, 0x2060),  # word joiner
    (0x2066, 0x2069),  # bidirectional isolates
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xE0000, 0xE007F),  # tag characters: invisible text that a model reads
)
_DELETED = dict.fromkeys(point for first, last in _DELETED_RANGES for point in range(first, last + 1))

# Every repetition is bounded, so that a match attempt costs a constant; the domain is atomic, so that one long label
# is not tried again at each shorter length.
_ADDRESS = re.compile(
    r"""
    [\w.%+'-]{1,64}
    (?: @ | %40 )
    [\w-]{1,63}+ (?: \. [\w-]{1,63}+ ){0,8}
    \. [^\W\d_]{2,24}+ (?![\w-])
    """,
    re.VERBOSE,
)
_BLANKS = re.compile(r"\s+")

REDACTED = "[email]"


def clean_text(text: str) -> str:
    """`text` without the 208 code points that control terminals, reorder or hide text; nothing replaces them.

    Tabs and line feeds stay; so do joiners, soft hyphens and variation selectors, which scripts and emoji need.
    """
    return text.translate(_DELETED)


def redact_emails(text: str) -> str:
    """`text` with each e-mail address replaced by `[email]`, also one written with `%40`; linear in its length."""
    if "@" not in text and "%40" not in text:
        return text
    return _ADDRESS.sub(REDACTED, text)


def safe(text: str) -> str:
    """`text` as a turn or a spine may hold it: cleaned, then redacted, not cut."""
    return redact_emails(clean_text(text))


def bounded(text: str, *, limit: int) -> str:
    """`text` cleaned and redacted; over `limit` characters it is cut, with a mark that says how much is missing.

    The mark comes on top of `limit`, so that the kept part is always whole and exactly that long.
    """
    whole = safe(text)
    if len(whole) <= limit:
        return whole
    return f"{whole[:limit]}\n[cut: {len(whole) - limit:,} of {len(whole):,} characters are missing here]"


def clean_line(text: str, *, limit: int = 300) -> str:
    """`text` cleaned and redacted on one line of at most `limit` characters; a cut one ends with `…`."""
    line = _BLANKS.sub(" ", safe(text)).strip()
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
