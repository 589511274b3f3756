"""Targets whose every write is counted outside our own records: files of the control directory."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from heinzelwerk import errors, ids
from heinzelwerk.ports import Placement, TargetView
from tests.faults.control import Control


class Board:
    """A publisher over one JSON file per place. `conditional`: its target compares before it writes, and so refuses late ones."""

    def __init__(self, action: str, control: Control, *, conditional: bool) -> None:
        self.action = action
        self.refuses_late = conditional
        self._control = control
        self._folder = control.directory / "targets"
        self._folder.mkdir(exist_ok=True)

    def target(self, arguments: Mapping[str, str]) -> str:
        return f"{self.action}:{arguments['place']}"

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        await self._control.hit("view", arguments["place"])
        held = self._held(arguments)
        shown = ids.digest(held["text"]) if held["text"] else ""
        return TargetView(self.target(arguments), shown=shown, before=held["text"], key=held["key"])

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        name = placement.key.split("/")[1]
        await self._control.hit("place.before", name)
        self._write(placement)
        await self._control.hit("place.after", name)
        return "1"

    def _path(self, arguments: Mapping[str, str]) -> Path:
        return self._folder / f"{self.action}-{arguments['place']}.lines"

    def _held(self, arguments: Mapping[str, str]) -> dict[str, str]:
        path = self._path(arguments)
        lines = path.read_text().splitlines() if path.exists() else []
        held: dict[str, str] = json.loads(lines[-1]) if lines else {"text": "", "key": ""}
        return held

    def _write(self, placement: Placement) -> None:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self._held(placement.arguments)
            if self.refuses_late:
                if held["key"] == placement.key:
                    return
                if (ids.digest(held["text"]) if held["text"] else "") != placement.shown:
                    raise errors.TargetConflict("the place has changed since it was shown")
            # What the target counts and what it holds are one line, in one write: a SIGKILL comes before or after it.
            line = json.dumps({"text": placement.text, "key": placement.key, "pid": os.getpid()}) + "\n"
            handle = os.open(self._path(placement.arguments), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)


def placed(control: Control) -> list[dict[str, str]]:
    """Every write that any target of this directory ever took, with its key."""
    folder = control.directory / "targets"
    return [json.loads(line) for path in folder.glob("*.lines") for line in path.read_text().splitlines()]
