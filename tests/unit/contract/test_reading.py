"""The contract format beyond the corpus: what each rule accepts and refuses, and at which line."""

import pytest

from heinzelwerk import contract
from heinzelwerk.contract import Reading, Severity
from heinzelwerk.schedule import CatchUp
from tests.unit.contract.writing import BODY, OUTPUTS, document

ALL = "  requires: [tracker:read, documents:read, chat:read, mail:read, calendar:read, team-graph:read, agent-runner:read]\n"
TWO_OUTPUTS = "  outputs:\n    page: {}\n    two: {}\n"


def read(text: str, file_name: str = "x.prose.md") -> Reading:
    return contract.read(text.encode("utf-8", "surrogatepass"), file_name=file_name)


def found(text: str, file_name: str = "x.prose.md") -> list[tuple[str, int, str]]:
    return sorted((d.code, d.line, d.field) for d in read(text, file_name).diagnostics)


def one_input(flow: str) -> str:
    return document(f"{ALL}  inputs:\n    a: {{{flow}}}\n", inputs="a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (document("  timeout: 3h\n  retries: 9\n"), [("HZC002", 11, "hz.retries")]),
        (document("  timeout: 3h\n  schedule: '61 * * * *'\n"), [("HZC011", 11, "hz.schedule")]),
        (document("  timeout: 3h\n  requires: ['a:b']\n"), [("HZC002", 10, "hz.timeout")]),
        (document("  requires: ['a:b']\n", outputs=TWO_OUTPUTS), [("HZC002", 11, "hz.requires.0")]),
        (document("  publishes: [{action: a.b, output: no}]\n", outputs=TWO_OUTPUTS), [("HZC002", 8, "hz.outputs")]),
        (document("  timeout: 3h\n", top="foo: 1\n"), [("HZC002", 5, "foo"), ("HZC002", 11, "hz.timeout")]),
        (document("  timeout: 3h\n  foo: 1\n"), [("HZC002", 11, "hz.foo")]),
        (document("  owner: me\n  foo: 1\n"), [("HZC023", 10, "hz.owner")]),
        (document("  catch_up: all\n"), [("HZC023", 10, "hz.catch_up")]),
        (
            document("  inputs: {A: {read: no}}\n"),
            [("HZC002", 10, "hz.inputs.A.[key]"), ("HZC002", 10, "hz.inputs.A.read")],
        ),
        (document("  agent: {max_usd: .nan}\n"), [("HZC002", 10, "hz.agent.max_usd")]),
        (
            document("  publishes: {a: {action: a.b, output: page, target: x}}\n"),
            [("HZC023", 10, "hz.publishes.a.target")],
        ),
        (document(top="version: 1.2.3-\n"), [("HZC002", 5, "version")]),
        (document().replace("  schema: 1\n", ""), [("HZC002", 5, "hz.schema")]),
    ],
)
def test_frontmatter_rules(text: str, expected: list[tuple[str, int, str]]) -> None:
    """A rule between keys speaks once all keys of its mapping are valid; the first of them speaks alone."""
    assert found(text) == sorted(expected)


@pytest.mark.parametrize(
    ("flow", "field"),
    [
        ("read: documents.read, args: {x: 1}, stage: draft", "stage"),
        ("read: documents.read, args: {x: a}, window: 7d", "window"),
        ("read: documents.read, args: {y: 1, x: 2}", "args.x"),
        ("read: documents.read, args: {}", "args"),
        ("read: documents.read, args: {ref: 1}", "args.ref"),
        ("read: documents.nope", "read"),
        ("read: documents.nope, stage: draft", "stage"),
        ("read: nope.read", "read"),
        ("read: chat.post, args: {channel: a, text: b}", "read"),
        ("read: agent-runner.run", "read"),
        ("read: tracker.issues_updated, args: {project: a}", "window"),
        ("read: mail.messages, args: {query: report}, window: 1d", "args.query"),
        ("read: 'contract:me/y#z', window: 7d, args: {a: b}", "args"),
        ("read: 'contract:me/y#z', window: 7d", "window"),
        ("read: 'contract:me/y#z'", "stage"),
        ("read: 'contract:us/y#z', stage: draft", "read"),
        ('read: documents.read, args: {ref: "\\uD800"}', "args.ref"),
    ],
)
def test_input_rules(flow: str, field: str) -> None:
    """An input that its method does not take is refused at the key that is wrong."""
    assert found(one_input(flow)) == [("HZC002", 12, f"hz.inputs.a.{field}")]


@pytest.mark.parametrize(
    "flow",
    [
        "read: team-graph.snapshot, stage: null, window: null",
        "read: calendar.free_busy, args: {people: ''}, window: 7d",
        "read: 'contract:me/y#z', args: {}, stage: draft",
        "read: tracker.issues_updated, args: {project: a}, window: last 366d",
    ],
)
def test_inputs_that_are_accepted(flow: str) -> None:
    """Null where null is the default, the user's own calendar, empty args and the longest window are fine."""
    assert found(one_input(flow)) == []


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("&a D", "HZC004"),
        ("*a", "HZC004"),
        ("!x D", "HZC004"),
        ("!!binary aGk=", "HZC004"),
        ("!!int many", "HZC001"),
        ("!!bool maybe", "HZC001"),
        ('"\\x07"', "HZC005"),
        ('"\\U00110000"', "HZC001"),
        ("\ufffe", "HZC001"),
        ("9" * 5000, "HZC001"),
        ("0x1F", "HZC002"),
        ("+1", "HZC002"),
        ("1.", "HZC002"),
        (".inf", "HZC002"),
        ("1e3", "HZC002"),
        ("~", "HZC002"),
        ("TRUE", "HZC002"),
    ],
)
def test_yaml_that_is_no_text(value: str, code: str) -> None:
    """What is refused, or is no text by the core schema, cannot be a description."""
    assert [d[0] for d in found(document().replace("description: D", f"description: {value}"))] == [code]


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "010",
        "1_000",
        "0o17",
        "0b1",
        "1:20",
        "2001-01-01",
        "nULL",
        "1e",
        ".",
        "=",
        "<<",
        "! D",
        "!!str 12",
        '"a\\tb"',
    ],
)
def test_yaml_that_is_text(value: str) -> None:
    """What YAML 1.1 turned into numbers, dates and truth is text."""
    assert found(document().replace("description: D", f"description: {value}")) == []


@pytest.mark.parametrize(
    ("hz", "line"),
    [
        ("  title: U\n", 10),
        ("  1: a\n", 10),
        ("  [a]: b\n", 10),
        ("  !!int a: b\n", 10),
        ("  requires: !!seq []\n", 10),
    ],
)
def test_refused_constructs_have_their_line(hz: str, line: int) -> None:
    """A duplicate key, a key that is no text and a tag on a list are refused where they stand."""
    assert found(document(hz)) == [("HZC004", line, "frontmatter")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("### Goal", "###Goal", [("HZC101", 22, "### Goal")]),
        ("### Goal", " ### Goal", [("HZC101", 22, "### Goal")]),
        ("### Goal", "### Goal ##", []),
        ("### Maintains", "### \u2028Maintain\u017f\u00a0", []),
        ("### Goal", "###\tGOAL\t###  ", []),
        ("### Goal\n", "### Goal\n# foo\n", [("HZC101", 12, "### Goal")]),
        ("### Goal\n", "### Goal\n#foo\n", []),
        ("The page is true.", "#### deeper", []),
        ("### Done when", "### Done   when", [("HZC105", 20, "### Done   when"), ("HZC107", 22, "### Done when")]),
        ("- [ ] Som", "1) Som", []),
        ("- [ ] Som", "        - Som", []),
        ("- [ ] Som", "> - Som", [("HZC107", 20, "### Done when")]),
        ("- [ ] Somebody could follow it.", "-", [("HZC107", 20, "### Done when")]),
        ("- `page`", "+\t`page`", []),
        ("- `page`", "1. `page`", [("HZC103", 16, "### Maintains")]),
        ("- `page`", "- page", [("HZC103", 16, "### Maintains")]),
        (
            "### Maintains",
            "### MA\u0130NTAINS",
            [("HZC103", 22, "### Maintains"), ("HZC105", 16, "### MA\u0130NTAINS")],
        ),
    ],
)
def test_sections_and_items(old: str, new: str, expected: list[tuple[str, int, str]]) -> None:
    """Sections begin at column 0 with three hashes; named items stand at column 0 too, Done when's may be indented."""
    assert found(document().replace(old, new)) == expected


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("### Memory\n", [("HZC106", 23, "### Memory")]),
        ("### Tools\n### TOOLS ###\n", [("HZC023", 23, "### Tools"), ("HZC023", 24, "### TOOLS")]),
        ("<!-- a\n-->### Memory\n", [("HZC106", 24, "### Memory")]),
        ("### Mem<!-- x -->ory\n", [("HZC106", 23, "### Memory")]),
        ("<!-->\n### Memory\n-->\n", []),
        ("```\n<!--\n```\n### Memory\n-->\n", []),
        ("   ```\n### Memory\n", []),
        ("    ```\n### Memory\n", [("HZC106", 24, "### Memory")]),
        ("````\n```\n### Memory\n", []),
        ("```\nx\n```js\n### Memory\n", [("HZC106", 26, "### Memory")]),
        ("~~~\n```\n### Memory\n", []),
        ("### \n", [("HZC105", 23, "### ")]),
        ("###\n", []),
        ("### Requires\n- `a`: x\n", [("HZC103", 23, "### Requires")]),
        ("### Requires\nfoo\n", []),
    ],
)
def test_headings_fences_and_comments(tail: str, expected: list[tuple[str, int, str]]) -> None:
    """Comments go first, then fences hide headings, and any line of a fence's sign closes it."""
    assert found(document() + tail) == expected


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("x.md", [("HZC010", 1, "file")]),
        ("y.md", [("HZC010", 1, "file"), ("HZC010", 2, "name")]),
        ("y.prose.md", [("HZC010", 2, "name")]),
        ("x.PROSE.md", [("HZC010", 1, "file"), ("HZC010", 2, "name")]),
        (".prose.md", [("HZC010", 2, "name")]),
    ],
)
def test_file_names(file_name: str, expected: list[tuple[str, int, str]]) -> None:
    """The name of a contract is what stands before `.prose.md`."""
    assert found(document(), file_name) == expected


def test_size_is_exact() -> None:
    """A file of 262,144 bytes is read, one byte more is not."""
    largest = document() + "x" * (262_144 - len(document()))
    assert found(largest) == []
    assert found(largest + "x") == [("HZC001", 1, "file")]


def test_line_ends_and_byte_order_mark_are_no_content() -> None:
    """A file saved elsewhere, with CRLF and a byte order mark, says the same; its bytes have their own hash."""
    plain = document()
    other = "\ufeff" + plain.replace("\n", "\r\n")
    assert read(other).body_sha256 == read(plain).body_sha256
    assert read(other).sha256 != read(plain).sha256


@pytest.mark.parametrize(
    "text", ["---\nname: x\n---", '---\ndescription: "\u2028\u2028\u2028\u2028"\nfoo: 1\n---\n', "", "\x07"]
)
def test_lines_stay_in_the_file(text: str) -> None:
    """No diagnostic points past the end, not even where YAML counts more line ends than the file has."""
    reading = read(text)
    assert reading.diagnostics
    assert all(1 <= d.line <= text.count("\n") + 1 for d in reading.diagnostics)


def test_new_keys_are_read() -> None:
    """The keys of this version are typed, and stand in the normalised frontmatter only where they were written."""
    reading = read(
        document(
            "  scope: team\n  timezone: Europe/Berlin\n  schedule: '@daily'\n  catch_up: skip\n  on: [inputs, event.release]\n"
            "  uses: [house-style]\n  on_budget: ask\n  timeout: 90s\n  agent: {model_class: best, max_usd: '1.5'}\n"
            "  publishes: [{action: documents.replace-section, output: page, args: {ref: docs/a.md, marker: weekly, n: 3}}]\n"
        )
    )
    found = reading.contract
    assert found is not None
    assert (found.timezone, found.on, found.uses, found.on_budget) == (
        "Europe/Berlin",
        ("inputs", "event.release"),
        ("house-style",),
        "ask",
    )
    assert (found.agent.model_class, found.agent.max_usd, found.timeout_s, found.catch_up) == (
        "best",
        1.5,
        90,
        CatchUp.SKIP,
    )
    assert dict(found.publishes[0].args) == {"ref": "docs/a.md", "marker": "weekly", "n": 3}
    assert found.frontmatter["hz"]["on"] == ["inputs", "event.release"]
    plain = read(document()).contract
    assert plain is not None
    assert not {"on", "uses", "timezone", "on_budget"} & set(plain.frontmatter["hz"])


@pytest.mark.parametrize(
    ("hz", "field"),
    [
        ("  timezone: Mars/Olympus\n", "timezone"),
        ("  timezone: America\n", "timezone"),
        ("  timezone: ../../etc/passwd\n", "timezone"),
        ("  on: [outputs]\n", "on.0"),
        ("  on: [event.A]\n", "on.0"),
        ("  on: [inputs, inputs]\n", "on.1"),
        ("  uses: [Bad]\n", "uses.0"),
        ("  uses: [a, b, a]\n", "uses.2"),
        ("  on_budget: pay\n", "on_budget"),
        ("  agent: {model_class: gpt}\n", "agent.model_class"),
        ("  publishes: [{action: a.b, output: page, args: {x: [1]}}]\n", "publishes.0.args.x"),
        ("  publishes: [{action: a.b, output: page, args: {x: .inf}}]\n", "publishes.0.args.x"),
        ("  applies: {roles: [x]}\n", "applies"),
    ],
)
def test_new_keys_are_checked(hz: str, field: str) -> None:
    """A bad value of a new key is refused like any other, at its own line."""
    assert found(document(hz)) == [("HZC002", 10, f"hz.{field}")]


def test_done_when_gives_the_items_texts() -> None:
    """Items lose bullets and check boxes; a line that goes on belongs to its item, a blank line ends it."""
    reading = read(
        document().replace(
            "- [ ] Somebody could follow it.", "- [x] One\n  goes on.\n\nNo item.\n1. Two\n   - [ ] three"
        )
    )
    assert reading.contract is not None
    assert reading.contract.done_when == ("One goes on.", "Two", "three")


def test_every_error_names_a_fix() -> None:
    """Each diagnostic says what to do, on one printable line."""
    texts = [
        document("  foo: 1\n"),
        "",
        document("  schedule: '61 * * * *'\n"),
        document(body=""),
        document("&a b: *c\n"),
        document("  owner: 1\n"),
    ]
    diagnostics = [d for text in texts for d in read(text).diagnostics]
    assert len(diagnostics) >= 8
    assert all(d.message and d.hint and "\n" not in d.message + d.hint for d in diagnostics)


def test_an_unquoted_star_gets_the_hint_to_quote_it() -> None:
    """The commonest slip, a cron text that begins with a star, is explained."""
    (diagnostic,) = read(document("  schedule: */5 * * * *\n")).diagnostics
    assert "quotes" in diagnostic.hint


@pytest.mark.parametrize(
    ("hz", "meant"),
    [
        ("  shedule: '@daily'\n", "schedule"),
        ("  agent: {max_used: 1}\n", "max_usd"),
        ("  inputs: {a: {raed: x}}\n", "read"),
        ("  Schema: 1\n", "schema"),
    ],
)
def test_a_misspelt_key_is_told_what_was_meant(hz: str, meant: str) -> None:
    """An unknown key that is near a known one of the same mapping names it."""
    assert f"Perhaps {meant} was meant." in [d.hint for d in read(document(hz)).diagnostics]


def test_nothing_printed_controls_a_terminal() -> None:
    """Names and values from the file lose escape sequences and half characters before anybody prints them."""
    reading = read(document('  "\\uD800": 1\n').replace("### Goal", "### Go\u202eal"), "\x1b[31mx.prose.md")
    assert reading.diagnostics
    for d in reading.diagnostics:
        shown = str(d) + d.hint
        assert not set("\x1b\u202e") & set(shown)
        shown.encode("utf-8")


def test_messages_are_bounded() -> None:
    """A message that quotes a value of the file's length is cut, and says so by its end."""
    for hz in (f"  requires: ['{'a' * 200_000}:read']\n", f"  publishes: [{{action: a.b, output: {'a' * 200_000}}}]\n"):
        (diagnostic,) = read(document(hz)).diagnostics
        assert len(diagnostic.message) == 400
        assert diagnostic.message.endswith("…")


def test_warnings_do_not_stop_a_contract() -> None:
    """A contract with warnings alone acts."""
    reading = read(document() + "### Extra\n")
    assert [d.severity for d in reading.diagnostics] == [Severity.WARNING]
    assert reading.contract is not None


def test_errors_in_the_body_keep_the_definition_but_no_contract() -> None:
    """The graph still knows a contract whose body is wrong; nothing else may use it."""
    reading = read(document(body=BODY.format(requires="").replace("### Goal", "### Gaol")))
    assert reading.definition is not None
    assert reading.contract is None


def test_outputs_constant_is_what_documents_use() -> None:
    """The writing aid and the format agree: the plain document is valid."""
    assert OUTPUTS in document()
    assert found(document()) == []
