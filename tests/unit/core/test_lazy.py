"""The garbage collector while public names are imported."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from oauthbroker.core import lazy
from oauthbroker.core.lazy import lazily

PLACES = {"place": {"one"}}


class Made:
    """Something that an import leaves."""


class Package(ModuleType):
    def __init__(self) -> None:
        super().__init__("a_package")
        self.was_on: bool | None = None
        self.fails = False

    def imported(self, _: str) -> ModuleType:
        self.was_on, found = gc.isenabled(), ModuleType("place")
        if self.fails:
            raise ImportError("no such place")
        found.one = Made()  # type: ignore[attr-defined]
        return found


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    made = Package()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(lazy, "import_module", made.imported)
    gc.enable()
    yield made
    gc.unfreeze()
    gc.enable()


def test_no_garbage_is_looked_for_during_an_import(package: Package) -> None:
    lazily("a_package", PLACES)("one")
    assert (False, True) == (package.was_on, gc.isenabled())


def test_what_an_import_made_is_old(package: Package) -> None:
    one = lazily("a_package", PLACES)("one")
    assert any(each is one for each in gc.get_objects(generation=2))
    assert 0 == gc.get_freeze_count()


def test_what_a_program_froze_stays_frozen(package: Package) -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    lazily("a_package", PLACES)("one")
    assert gc.get_freeze_count() > frozen / 2  # a few of them may die meanwhile


def test_a_collector_that_a_program_switched_off_stays_off(package: Package) -> None:
    gc.disable()
    lazily("a_package", PLACES)("one")
    assert not gc.isenabled()


def test_a_failed_import_leaves_the_collector_on(package: Package) -> None:
    package.fails = True
    with pytest.raises(ImportError):
        lazily("a_package", PLACES)("one")
    assert gc.isenabled()
