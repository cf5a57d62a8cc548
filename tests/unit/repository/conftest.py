"""Close the file stores of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from oauthbroker.store.file.file_store import FileStore


@pytest.fixture(autouse=True)
def closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test opens: a store holds fifteen descriptors, and one process runs thousands of tests."""
    opened = list[FileStore]()
    begin = FileStore.__init__

    def noted(store: FileStore, *args: Any, **options: Any) -> None:
        begin(store, *args, **options)
        opened.append(store)

    monkeypatch.setattr(FileStore, "__init__", noted)
    yield
    for store in opened:
        asyncio.run(store.close())
