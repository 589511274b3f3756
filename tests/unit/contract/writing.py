"""Contract files for tests: a small valid one, and the same with more keys or another body."""

BODY = """
### Goal

The page is true.
{requires}
### Maintains

- `page`: the page.

### Done when

- [ ] Somebody could follow it.
"""
OUTPUTS = "  outputs:\n    page: {format: markdown}\n"


def document(hz: str = "", *, top: str = "", outputs: str = OUTPUTS, inputs: str = "", body: str | None = None) -> str:
    """The text of `x.prose.md`: `hz` and `top` are further lines of YAML, from line 10 (`top`: from line 5) on.

    `inputs` are one-letter names that the body lists under `### Requires`.
    """
    listed = "".join(f"- `{name}`: read\n" for name in inputs)
    requires = f"\n### Requires\n\n{listed}" if inputs else ""
    head = f"---\nname: x\nkind: responsibility\ndescription: D\n{top}hz:\n  schema: 1\n  title: T\n{outputs}{hz}---\n"
    return head + (BODY.format(requires=requires) if body is None else body)
