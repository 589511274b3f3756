"""Loading a team's repository: every contract checked, the set made one numbered generation before any of it acts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from heinzelwerk import admission, amending, contract, errors, ids, planning, skilling
from heinzelwerk.contract import Contract, Reading, directory, sets
from heinzelwerk.contract.diagnostic import Severity
from heinzelwerk.contract.sets import Installed, SetReport
from heinzelwerk.generation import ContractEntry, Generation, LoadReply, Publishing
from heinzelwerk.schedule import Schedule
from heinzelwerk.skill import Skill

if TYPE_CHECKING:
    from heinzelwerk.ports import Store

log = structlog.get_logger("heinzelwerk.loading")

WORKFLOWS = amending.WORKFLOWS


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load did, and all diagnostics of the set; a broken contract sleeps and stops nobody else."""

    reply: LoadReply
    report: SetReport


@dataclass(frozen=True, slots=True)
class Repository:
    """A team's repository as it was read: the contracts' readings with their bytes, and the skills that count."""

    readings: tuple[Reading, ...]
    texts: Mapping[str, bytes]  # sha256:<hex> -> the bytes of a contract file
    skills: tuple[Skill, ...] = ()


def read_repository(root: Path, *, skills: Iterable[Skill] = ()) -> Repository:
    """Read `<root>/workflows/*.prose.md`; no symbolic link is followed, one bad file never hides the others.

    Refused where the directory itself cannot be read: taken for an empty one it would put the whole team to sleep.
    """
    readings = directory.read_directory(root / WORKFLOWS)
    unread = next((found for found in readings if Path(found.file) == root / WORKFLOWS), None)
    if unread is not None:
        raise errors.Refused(f"{root / WORKFLOWS}: {unread.diagnostics[0].message}", fix=unread.diagnostics[0].hint)
    texts: dict[str, bytes] = {}
    kept = []
    for found in readings:
        data = directory.read_bytes(root / WORKFLOWS / Path(found.file).name) if found.sha256 else None
        # Read once more from these very bytes, so that text and entry are of one version whoever saves meanwhile.
        same = (
            contract.read(data, file_name=Path(found.file).name, file=found.file) if isinstance(data, bytes) else found
        )
        if isinstance(data, bytes):
            texts[same.sha256] = data
        kept.append(_relative(same, root))
    return Repository(tuple(kept), texts, tuple(skills))


def generation_of(
    team: str, repository: Repository, *, timezone: str, source: str, installed: Installed
) -> tuple[Generation, SetReport]:
    """The generation that a repository makes, and everything that is wrong with its contracts."""
    report = sets.check_set(repository.readings, installed=installed)
    entries = {reading.name: _entry(reading, timezone) for reading in report.readings}
    packed = {entry.name: skilling.pack(entry) for entry in repository.skills}
    texts = dict(repository.texts)
    names: dict[str, str] = {}
    for name, data in packed.items():
        names[name] = f"sha256:{ids.digest(data)}"
        texts[names[name]] = data
    return Generation(team, entries, texts, names, source=source, timezone=timezone), report


async def load(
    team: str, repository: Repository, *, timezone: str, source: str, installed: Installed, store: Store
) -> Loaded:
    """Make a repository's contracts the team's newest generation; new schedules begin with their next slot from now."""
    generation, report = generation_of(team, repository, timezone=timezone, source=source, installed=installed)
    now = admission.at(await store.now_ms())
    slots: dict[str, int] = {}
    for entry in generation.entries.values():
        if entry.schedule is None or not entry.acts:
            continue
        following = Schedule.parse(entry.schedule, timezone=entry.timezone or timezone).next_slot(now)
        if following is not None:
            slots[entry.name] = int(following.timestamp() * 1000)
    reply = await store.load(generation, slots)
    log.info(
        "contracts loaded",
        team=team,
        generation=reply.number,
        source=source,
        contracts=len(generation.entries),
        broken=[entry.broken[0] for entry in generation.entries.values() if entry.broken],
    )
    return Loaded(reply, report)


async def text_of(team: str, name: str, *, store: Store) -> bytes | None:
    """The bytes of a contract in the team's newest generation; None where none is loaded under this name."""
    entry = (await store.entries(team, (name,))).get(name)
    return await store.text(team, entry.sha256) if entry is not None else None


def _entry(reading: Reading, timezone: str) -> ContractEntry:
    broken = tuple(_line(found) for found in reading.diagnostics if found.severity is Severity.ERROR)
    text = reading.definition
    if text is None or broken:
        title = text.title if text else ""
        return ContractEntry(
            name=reading.name,
            file=reading.file,
            sha256=reading.sha256,
            title=title,
            broken=broken or ("it cannot be read",),
        )
    return ContractEntry(
        name=reading.name,
        file=reading.file,
        sha256=reading.sha256,
        title=text.title,
        schedule=text.schedule,
        timezone=text.timezone or timezone,
        catch_up=text.catch_up.value,
        on=text.on,
        publishes=_publishes(text),
        outputs=tuple(text.outputs),
        reads=tuple(_reads(text)),
    )


def _publishes(text: Contract) -> tuple[Publishing, ...]:
    """What the contract declares, and what every contract may ask for: a kept lesson, a change of its own text."""
    internal = (
        Publishing(action=planning.KEEP_LESSON, output="lesson"),
        Publishing(action=planning.AMEND, output="contract"),
    )
    return (*planning.publishings(text), *internal)


def _reads(text: Contract) -> Iterable[str]:
    for spec in text.inputs.values():
        if spec.contract is not None:
            _, name, output = spec.contract
            yield f"{name}#{output}"


def _line(found: contract.Diagnostic) -> str:
    return f"{found.file}:{found.line} {found.code} {found.field} {found.message}"


def _relative(reading: Reading, root: Path) -> Reading:
    path = Path(reading.file)
    name = str(path.relative_to(root)) if path.is_relative_to(root) else reading.file
    return replace(reading, file=name, diagnostics=tuple(replace(found, file=name) for found in reading.diagnostics))
