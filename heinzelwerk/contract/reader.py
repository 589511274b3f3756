"""Reading one contract file: bytes in, a contract or its diagnostics out; nothing is raised, whatever the bytes are.

The steps and which of them end the reading are those of the contract format, section 1.1.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePosixPath

from heinzelwerk.contract import body as bodies
from heinzelwerk.contract import definition, diagnostic, frontmatter, source, validation
from heinzelwerk.contract.body import Body
from heinzelwerk.contract.definition import Contract
from heinzelwerk.contract.diagnostic import Diagnostic, Severity
from heinzelwerk.contract.frontmatter import Loaded, Path
from heinzelwerk.contract.model import Frontmatter
from heinzelwerk.contract.source import Finding

SUFFIX = ".prose.md"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file says.

    `name` comes from the file's name. `definition` is there as soon as the frontmatter was read, also when the body has
    errors (the graph needs it); `contract` only while nothing is wrong. `sha256` is `sha256:<hex>` of the bytes,
    `body_sha256` the hex digest of the agent's text, None where the reading ended before the body.
    """

    file: str
    name: str
    namespace: str
    sha256: str
    diagnostics: tuple[Diagnostic, ...] = ()
    definition: Contract | None = None
    body_sha256: str | None = None
    last_line: int = 1
    keys: Loaded | None = field(default=None, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The contract's name in graphs: `<namespace>:<name>`."""
        return f"{self.namespace}:{self.name}"

    @property
    def valid(self) -> bool:
        """Whether the contract may act: no diagnostic is an error."""
        return all(found.severity is not Severity.ERROR for found in self.diagnostics)

    @property
    def contract(self) -> Contract | None:
        """The contract, while neither the file nor the set that it was checked in holds an error."""
        return self.definition if self.valid else None

    def finding(self, code: str, path: Path, message: str, hint: str = "") -> Diagnostic:
        """A diagnostic at a key of this file's frontmatter."""
        line = self.keys.line_of(path) if self.keys is not None else 1
        place = ".".join(str(part) for part in path)
        return self._diagnostic(Finding(line, code, place, message, hint))

    def adding(self, diagnostics: Iterable[Diagnostic]) -> "Reading":
        """A copy with more diagnostics, in order."""
        return replace(self, diagnostics=diagnostic.in_order((*self.diagnostics, *diagnostics)))

    def found(self, findings: Iterable[Finding]) -> "Reading":
        """A copy with these findings as diagnostics of this file."""
        return self.adding(self._diagnostic(finding) for finding in findings)

    def _diagnostic(self, found: Finding) -> Diagnostic:
        # YAML counts U+2028 as a line end, so its lines may run past the file's: a place outside helps nobody.
        line = min(max(found.line, 1), self.last_line)
        return diagnostic.make(
            found.code, file=self.file, line=line, field=found.field, message=found.message, hint=found.hint
        )


def stem(file_name: str) -> str:
    """The name that a file gives its contract: what stands before `.prose.md`, else the ordinary stem."""
    name = PurePosixPath(file_name).name
    return name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else PurePosixPath(name).stem


def read(data: bytes, *, file_name: str, namespace: str = "team", file: str | None = None) -> Reading:
    """Read a contract's bytes. `file_name` names the contract; `file` (default: the same) is shown in diagnostics."""
    reading = replace(
        unread(file_name=file_name, namespace=namespace, file=file),
        sha256=f"sha256:{hashlib.sha256(data).hexdigest()}",
        last_line=data.count(b"\n") + 1,
    )
    try:
        return _read(data, reading, file_name=file_name)
    except Exception as error:  # noqa: BLE001 - one file must never hide the others; the fault is ours and says so
        message = f"reading the file failed unexpectedly: {type(error).__name__}"
        hint = "Report it with the file; until then change what was edited last."
        return reading.found((Finding(1, "HZC001", "file", message, hint),))


@lru_cache(maxsize=256)
def reread(data: bytes, *, file_name: str) -> Reading:
    """`read` of a team's contract that was loaded: each turn starts from these bytes, and they are read once per process."""
    return read(data, file_name=file_name)


def unread(*, file_name: str, namespace: str, file: str | None = None) -> Reading:
    """A reading of a file whose bytes nobody has seen: no diagnostics yet, and no hash."""
    shown = diagnostic.printable(file_name if file is None else file)
    return Reading(file=shown, name=stem(file_name), namespace=namespace, sha256="")


def _read(data: bytes, reading: Reading, *, file_name: str) -> Reading:
    content = source.decode(data)
    if not isinstance(content, str):
        return reading.found(content)
    if not file_name.endswith(SUFFIX):
        message = f"the file's name does not end in {SUFFIX}"
        hint = f"Rename it to {reading.name}{SUFFIX}."
        reading = reading.found((Finding(1, "HZC010", "file", message, hint),))
    split = source.split(content)
    if isinstance(split, Finding):
        return reading.found((split,))
    loaded = frontmatter.load(split.frontmatter)
    if isinstance(loaded, Finding):
        return reading.found((loaded,))
    front, findings = validation.validate(loaded)
    body = bodies.read(split.body, first_line=split.body_line)
    return _with_body(replace(reading.found(findings), keys=loaded), front, body)


def _with_body(reading: Reading, front: Frontmatter | None, body: Body) -> Reading:
    """The reading with what its body says; without a frontmatter only the body's own sections can be checked."""
    reading = reading.found(bodies.check_sections(body))
    digest = hashlib.sha256(body.text.encode("utf-8")).hexdigest()
    reading = replace(reading, body_sha256=digest)
    if front is None:
        return reading
    if front.name != reading.name:
        message = f"the contract is named {front.name}, its file {reading.name[:80]}"
        hint = f"Rename the file to {front.name}{SUFFIX}, or the contract."
        reading = reading.adding((reading.finding("HZC010", ("name",), message, hint),))
    reading = reading.found(bodies.check_items(body, inputs=front.hz.inputs, outputs=front.hz.outputs))
    done = body.first("Done when")
    contract = definition.build(
        front,
        namespace=reading.namespace,
        body=body.text,
        done_when=bodies.items(done) if done is not None else (),
        sha256=reading.sha256,
    )
    return replace(reading, definition=contract)
