"""The backends of stores that keep the contract."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.entry_names import entry_names
from oauthbroker.store.format.port import Conflict, Store
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing.stores import open_file_store
from tests.contract.store_contract import Open, StoreContract
from tests.contract.store_processes import ProcessContract
from tests.kit import installed
from tests.kit.forms import examples


def memory_store() -> MemoryStore:
    return MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())


class TestMemory(StoreContract):
    @pytest.fixture
    def open_store(self) -> Open:
        store = memory_store()
        return lambda: store


class TestFile(ProcessContract, StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path) -> Open:
        return lambda: open_file_store(tmp_path)

    @pytest.fixture
    def place(self, tmp_path) -> list[str]:
        return [str(tmp_path)]


NAMES = st.sampled_from(["a", "b", "c"])
KIND = st.sampled_from(["grants", "sessions"])
BODIES = st.binary(max_size=600)


class FileAgainstMemory(RuleBasedStateMachine):
    """The file store, closed and opened again at will, does what the one in memory does."""

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.retry_store = contextlib.ExitStack()
        self.folder = Path(self.retry_store.enter_context(temporary_folder()))
        self.file, self.memory = open_file_store(self.folder), memory_store()

    def both(self, call: Callable[[Store], Awaitable[object]]) -> None:
        assert self.run(call, self.memory) == self.run(call, self.file)

    def run(self, call: Callable[[Store], Awaitable[object]], store: Store) -> object:
        async def run() -> object:
            try:
                return await call(store)
            except Conflict:
                return "conflict"

        return self.runner.run(run())

    @rule(kind=KIND, name=NAMES, body=BODIES, ahead=st.sampled_from([0, 0, 0, 1, -1]))
    def put(self, kind: str, name: str, body: bytes, ahead: int) -> None:
        async def put(store: Store) -> int:
            entry = await store.get(store.key(kind, name))
            expect = max(0, (entry.generation if entry else 0) + ahead)
            return (await store.put(store.key(kind, name), body, expect=expect)).generation

        self.both(put)

    @rule(kind=KIND, name=NAMES, expect=st.integers(0, 3))
    def delete(self, kind: str, name: str, expect: int) -> None:
        self.both(lambda store: store.delete(store.key(kind, name), expect=expect))

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.file.close())
        self.file = open_file_store(self.folder)

    @invariant()
    def both_hold_the_same(self) -> None:
        async def contents(store: Store) -> object:
            found = [sorted([(entry.generation, entry.body) async for entry in store.scan(kind)]) for kind in KINDS[:2]]
            return found, [await store.count(kind) for kind in KINDS[:2]]

        if hasattr(self, "memory"):
            self.both(contents)

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.runner.run(self.file.close())
            self.runner.close()
            self.retry_store.close()


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:

    with tempfile.TemporaryDirectory(dir=installed.memory()) as folder:
        yield folder


TestFileAgainstMemory = pytest.mark.slow(FileAgainstMemory.TestCase)
FileAgainstMemory.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None, database=None
)


@pytest.mark.case("45", "78")
@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_two_different_lists_of_parts_never_share_a_name(one, two):
    """Any text: separators, NUL, lone surrogates, either normal form."""
    name_key = bytes(32)
    assert (one == two) == (entry_names(name_key)("grants", *one) == entry_names(name_key)("grants", *two))
