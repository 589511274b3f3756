"""The capability `documents`, read from a directory of Markdown files that the operator names."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt
from pydantic import BaseModel, JsonValue

from heinzelwerk import folder, ids, text
from heinzelwerk.capability import asking
from heinzelwerk.capability.shapes import Document
from heinzelwerk.errors import ReadFailed

METHOD = "read"

_LONGEST_TITLE = 300
_MOST_OF_HEADING = 4_000
_BLOCKS = MarkdownIt("commonmark").disable(
    "inline"
)  # headings are blocks; reading every word would cost ten times as much
_INLINE = MarkdownIt("commonmark")
_FENCE = "---"


class ReadDocument(BaseModel, frozen=True, extra="forbid"):
    """The arguments of `read`: a document by its path below the documents directory."""

    ref: str


class FileDocuments:
    """`documents` over one directory; links are never followed, hidden files never read."""

    name = "documents"

    def __init__(self, directory: Path, *, most_bytes: int = folder.MOST_BYTES) -> None:
        self._directory = directory
        self._most_bytes = most_bytes

    def methods(self) -> Mapping[str, type[BaseModel]]:
        """One method: `read(ref)`."""
        return {METHOD: ReadDocument}

    async def read(
        self, method: str, arguments: Mapping[str, str], *, since: datetime | None, until: datetime | None
    ) -> JsonValue:
        """One document whole, as a `Document` in JSON form. FileError (a ReadFailed) says why there is none."""
        asked = asking.arguments(self, method, arguments, of=ReadDocument)
        return await asyncio.to_thread(self._read, asked.ref)

    def _read(self, ref: str) -> JsonValue:
        try:
            names = folder.parts(ref)
        except ValueError as error:
            raise ReadFailed(str(error)) from None
        with folder.entered(self._directory, ref, names) as here:
            data = folder.read(here, ref, names[-1], most_bytes=self._most_bytes).data
        return document(ref, data).model_dump(mode="json")


def document(ref: str, data: bytes) -> Document:
    """The document that these bytes are, cleaned and redacted; FileUnsafe where they are no UTF-8."""
    content = text.safe(folder.decoded(data, ref))
    return Document(ref=ref, title=title(content, ref), text=content, url=None, revision=f"sha256:{ids.digest(data)}")


def title(content: str, ref: str) -> str:
    """The first heading's words; the file's name without its ending where the document has no heading."""
    tokens = _BLOCKS.parse(_without_frontmatter(content))
    for opening, words in itertools.pairwise(tokens):
        if opening.type == "heading_open" and (plain := text.clean_line(_plain(words.content), limit=_LONGEST_TITLE)):
            return plain
    return PurePosixPath(ref).stem


def _plain(markdown: str) -> str:
    # A paragraph of a megabyte over a line of `=` is a heading too; only its beginning can be a title.
    pieces = (part for token in _INLINE.parseInline(markdown[:_MOST_OF_HEADING]) for part in token.children or ())
    return "".join(
        " " if piece.type.endswith("break") else piece.content for piece in pieces if piece.type != "html_inline"
    )


def _without_frontmatter(content: str) -> str:
    """Markdown itself would read the last line of a YAML frontmatter as an underlined heading."""
    lines = content.split("\n")
    if lines[0].rstrip() != _FENCE:
        return content
    end = next((index for index, line in enumerate(lines[1:], start=1) if line.rstrip() == _FENCE), None)
    return content if end is None else "\n".join(lines[end + 1 :])
