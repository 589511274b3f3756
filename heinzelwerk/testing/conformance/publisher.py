"""What every publisher holds: it places once, over what was shown, and says so truthfully."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from heinzelwerk import errors
from heinzelwerk.ports import Placement, Publisher

_PATIENCE_S = 30.0


class PublisherSuite:
    """Give the fixture `publisher`, `arguments` of a target that is there, and `missing` ones of a target that is not."""

    arguments: ClassVar[Mapping[str, str]]
    missing: ClassVar[Mapping[str, str]]

    @pytest.fixture
    def publisher(self) -> Publisher:
        """The adapter, over a target that nothing was placed in yet."""
        raise NotImplementedError("give a fixture `publisher`")

    async def _place(self, publisher: Publisher, text: str, *, key: str, shown: str | None = None) -> str:
        seen = (await publisher.view(self.arguments)).shown if shown is None else shown
        return await publisher.place(Placement(key, self.arguments, text, seen), deadline_s=_PATIENCE_S)

    def test_a_target_has_one_name(self, publisher: Publisher) -> None:
        """The same arguments name the same target, others another one: effects of one target run one at a time."""
        assert publisher.target(self.arguments)
        assert publisher.target(self.arguments) == publisher.target(dict(self.arguments))
        assert publisher.target(self.missing) != publisher.target(self.arguments)

    def test_wrong_arguments_are_refused(self, publisher: Publisher) -> None:
        """Before anything is planned."""
        with pytest.raises(errors.Refused):
            publisher.target({})

    async def test_what_was_placed_is_shown(self, publisher: Publisher) -> None:
        """With the key of its effect and the revision that placing answered: that is how an unknown end is looked up."""
        revision = await self._place(publisher, "One line.", key="first")
        found = await publisher.view(self.arguments)
        assert found.before.strip() == "One line."
        assert (found.key, found.revision) == ("first", revision)

    async def test_a_newer_text_replaces_the_older(self, publisher: Publisher) -> None:
        """Over the section as shown, and as often as wished."""
        for number in range(3):
            await self._place(publisher, f"Text {number}.", key=f"key-{number}")
        found = await publisher.view(self.arguments)
        assert (found.before.strip(), found.key) == ("Text 2.", "key-2")

    async def test_what_changed_since_it_was_shown_is_not_overwritten(self, publisher: Publisher) -> None:
        """TargetConflict, and nothing changed: somebody's words stand there."""
        shown = (await publisher.view(self.arguments)).shown
        await self._place(publisher, "Somebody's.", key="theirs")
        with pytest.raises(errors.TargetConflict):
            await self._place(publisher, "Ours.", key="ours", shown=shown)
        found = await publisher.view(self.arguments)
        assert (found.before.strip(), found.key) == ("Somebody's.", "theirs")

    async def test_the_same_effect_twice_is_one(self, publisher: Publisher) -> None:
        """As after a lost answer: the repetition changes nothing."""
        shown = (await publisher.view(self.arguments)).shown
        first = await self._place(publisher, "Once.", key="one", shown=shown)
        again = await self._place(publisher, "Once.", key="one", shown=shown)
        assert first == again
        assert (await publisher.view(self.arguments)).before.strip() == "Once."

    async def test_a_missing_target_is_named(self, publisher: Publisher) -> None:
        """TargetMissing, for reading and for placing; nothing is made up."""
        with pytest.raises(errors.TargetMissing):
            await publisher.view(self.missing)
        with pytest.raises(errors.TargetMissing):
            await publisher.place(Placement("k", self.missing, "Text.", ""), deadline_s=_PATIENCE_S)

    async def test_without_time_left_nothing_is_placed(self, publisher: Publisher) -> None:
        """An attempt whose deadline has passed changes nothing: somebody may already be looking whether it arrived."""
        shown = (await publisher.view(self.arguments)).shown
        with pytest.raises(errors.HeinzelwerkError):
            await publisher.place(Placement("late", self.arguments, "Late.", shown), deadline_s=0.0)
        assert (await publisher.view(self.arguments)).key != "late"
