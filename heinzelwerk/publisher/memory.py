"""The publisher's double: the same rules over texts in memory, for tests and for trying contracts."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from heinzelwerk import ids
from heinzelwerk.errors import Refused, TargetMissing, TargetUnavailable
from heinzelwerk.ports import Placement, TargetView
from heinzelwerk.publisher import section
from heinzelwerk.publisher.section import Where


class MemorySections:
    """`documents.replace-section` over a mapping from reference to text; `placements` lists what arrived, in order."""

    action = section.ACTION
    refuses_late = True  # the comparison and the change are one step: nothing can come between them

    def __init__(self, documents: MutableMapping[str, str]) -> None:
        self.documents = documents
        self.placements: list[Placement] = []

    def target(self, arguments: Mapping[str, str]) -> str:
        """`documents:<ref>#<marker>`; Refused as the real one."""
        return section.where(arguments).target

    async def view(self, arguments: Mapping[str, str]) -> TargetView:
        """The section as it is."""
        at = section.where(arguments)
        content = self._content(at)
        return section.view(content, at, revision=ids.digest(content))

    async def read_back(self, arguments: Mapping[str, str]) -> TargetView:
        """What stands there after an attempt."""
        return await self.view(arguments)

    async def place(self, placement: Placement, *, deadline_s: float) -> str:
        """Replace the section if it still is as shown; answers the document's SHA-256."""
        try:
            at = section.where(placement.arguments)
        except Refused as error:
            raise TargetMissing(str(error)) from error
        if deadline_s <= 0:
            raise TargetUnavailable(f"{at} was not written: its time was up; nothing was changed")
        after = section.place(self._content(at), at, placement)
        self.documents[at.ref] = after
        self.placements.append(placement)
        return ids.digest(after)

    def _content(self, at: Where) -> str:
        try:
            return self.documents[at.ref]
        except KeyError:
            raise TargetMissing(f"there is no document {at.ref} in the documents directory: check the name") from None
