"""Stores that earlier versions left: each opens under this one, and everything that lies in it still counts."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, Ready, open_broker
from oauthbroker.testing import TestClock
from oauthbroker.wiring import open_vault
from tests.kit.kept_stores import FOLDER, bundle_of, make, settings_of, unpack
from tests.kit.running_broker import ALICE, turn

KEPT = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def test_there_is_one_to_open():
    assert "0.1.0" in KEPT


@pytest.mark.parametrize("version", KEPT)
async def test_a_store_of_an_earlier_version_works_on(version: str, tmp_path: Path):
    kept, place = KEPT[version], tmp_path / "place"
    unpack(kept, place)
    await holds_what_was_found(kept, place)


async def holds_what_was_found(kept: dict[str, Any], place: Path) -> None:
    """Open it twice: the second time after the upgrades of the first."""
    found, clock = kept["found"], TestClock(datetime.fromisoformat(kept["madeAt"]))
    bundle = bundle_of(place, kept["endpoints"], {})
    for _ in range(2):
        async with open_broker(bundle, env={}, clock=clock, background=False) as broker:
            for app, subject in found["ready"]:
                assert isinstance(await broker.oauth(turn(user=subject)).get_access_token(app), Ready), app
            for app, subject in found["mustAgree"]:
                answer = await broker.oauth(turn(user=subject)).get_access_token(app)
                assert isinstance(answer, AuthorizationRequired), app
            tool = broker.oauth_for(await broker.turns.admit(found["turnToken"]))
            assert "appForbidden" == getattr(await tool.get_access_token("files"), "code", None)
            assert "runtime" == (await broker.api_keys.check(found["apiKey"])).name
            [state] = await broker.dead_letters.states()
            assert (found["waiting"], len(found["dead"])) == (state.waiting, state.dead)
            assert found["dead"] == [letter.id for letter in await broker.dead_letters.dead("planner")]
            for session in found["sessions"]:
                assert "pending" == (await broker.wait(session, timeout=0)).status
    async with open_vault(settings_of(place), env={}, clock=clock) as vault:
        assert found["secrets"] == [list(each) for each in await vault.secrets.names()]


async def test_a_store_of_this_version_is_made_as_the_kept_ones_were(tmp_path: Path):
    """The command that keeps one keeps working, and the store holds the listed records."""
    async with asyncio.timeout(120):
        kept = await make(tmp_path / "made")
    unpack(kept, tmp_path / "place")
    assert ["files", ALICE] in kept["found"]["ready"]
    await holds_what_was_found(kept, tmp_path / "place")
