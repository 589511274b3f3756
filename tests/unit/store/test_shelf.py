"""Texts by hash, kept in the process."""

from heinzelwerk.store.shelf import Shelf


def test_a_kept_text_belongs_to_its_team() -> None:
    """What one team has loaded is not answered to another."""
    shelf = Shelf()
    shelf.keep("crew", "sha256:a", b"text")
    assert shelf.get("crew", "sha256:a") == b"text"
    assert shelf.get("other", "sha256:a") is None
    assert shelf.get("crew", "sha256:b") is None


def test_the_oldest_text_makes_room() -> None:
    """The bytes are bounded whatever is read, and a text over the bound is not kept at all."""
    shelf = Shelf(most_bytes=10)
    for name in ("a", "b", "c"):
        shelf.keep("crew", name, b"1234")
        shelf.keep("crew", name, b"1234")
    shelf.keep("crew", "large", b"x" * 11)
    assert [name for name in ("a", "b", "c", "large") if shelf.get("crew", name)] == ["b", "c"]
