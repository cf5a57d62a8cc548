"""A start looks for the leftovers of a crash only after a process has died: its open mark tells."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing.stores import open_file_store
from tests.kit.crashfs import CountingFs

DIES = """
import os, sys
from pathlib import Path
from oauthbroker.testing.stores import open_file_store
store = open_file_store(Path(sys.argv[1]))
store._entries.prepare(store.key("grants", "a"), 1, b"x")
os._exit(1)
"""


def ended(store: FileStore) -> None:
    """Close a store in order."""
    asyncio.run(store.close())


def hidden(tmp_path: Path) -> list[str]:
    return sorted(path.name[:6] for path in (tmp_path / "store").rglob(".*"))


def test_what_a_dead_writer_left_is_collected_at_the_next_start(tmp_path: Path) -> None:
    ended(open_file_store(tmp_path))
    subprocess.run([sys.executable, "-c", DIES, tmp_path], check=False)
    assert 2 == len(hidden(tmp_path))
    later = open_file_store(tmp_path)
    assert [".open."] == hidden(tmp_path)
    ended(later)
    assert [] == hidden(tmp_path)


def test_a_start_beside_a_living_store_keeps_its_mark(tmp_path: Path) -> None:
    store = open_file_store(tmp_path)
    ended(open_file_store(tmp_path))
    assert [".open."] == hidden(tmp_path)
    ended(store)


def test_a_forked_child_that_closes_the_store_leaves_its_mark(tmp_path: Path) -> None:
    store = open_file_store(tmp_path)
    child = os.fork()
    if not child:
        store._folders.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert [".open."] == hidden(tmp_path)
    ended(store)


def test_a_start_after_an_orderly_end_lists_no_records(tmp_path: Path) -> None:
    """It takes as long for a million records as for one. Only `data` itself is listed, twice."""
    ended(open_file_store(tmp_path, kinds=("grants",)))
    for end, listings in (("in order", 2), ("in order", 2), ("by a death", 6)):
        if end == "by a death":
            (tmp_path / "store" / "data" / ".open.0123456789abcdef").touch(0o600)
        fs = CountingFs()
        ended(open_file_store(tmp_path, kinds=("grants",), fs=fs))
        assert listings == fs.calls["listdir"], end


def test_the_mark_of_a_dead_process_that_others_may_write_is_refused(tmp_path: Path) -> None:
    ended(open_file_store(tmp_path))
    mark = tmp_path / "store" / "data" / ".open.1"
    mark.touch(0o600)
    mark.chmod(0o666)
    with pytest.raises(BrokerError) as raised:
        open_file_store(tmp_path)
    assert Code.STORE_PERMISSIONS is raised.value.code
    mark.chmod(0o600)
    ended(open_file_store(tmp_path))
    assert [] == hidden(tmp_path)
