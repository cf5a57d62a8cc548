"""A running broker removes the lock files that its grants have left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oauthbroker import open_broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.wiring import running as wired_running
from oauthbroker.wiring.storage import init_store
from tests.kit.running_broker import BASE
from tests.kit.waiting import until


async def test_a_running_broker_removes_the_lock_files_of_grants_that_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(public_base_url=BASE, store_root=str(tmp_path / "store"), key_file=str(tmp_path / "kek"))
    init_store(settings, {}, SystemClock())
    locks = tmp_path / "store/data/locks"
    locks.mkdir(0o700)
    for name in ("pair", "provider", "queue"):
        (locks / f"{name}-{'a' * 64}").touch(0o600)
        os.utime(locks / f"{name}-{'a' * 64}", (0, 0))
    monkeypatch.setattr(wired_running, "TIDY_SECONDS", 0.01)
    async with open_broker(Bundle(settings, {}), env={}):
        await until(lambda: not [*locks.glob("p*-*")])
    assert [f"queue-{'a' * 64}"] == [path.name for path in locks.glob("*-a*")]
