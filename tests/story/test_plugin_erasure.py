"""Erasing a subject reaches what plug-ins keep outside of the store: ended first, then removed, and counted."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.plugin_resources import PluginResource, PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.plugin_package import install
from tests.kit.running_broker import ALICE, BOB, Harness, running, user_app

PLUGIN = """
from oauthbroker.plugins import SubjectRecords

kept = {"idp:user:U234567": 3}
ending = [1, 0, 0, 0]


async def erase(bundle, subject, *, dry_run, audit):
    resources = bundle.plugins["shop"].of("Bed")
    heard.append((sorted(resources), subject, dry_run))
    if dry_run:
        return SubjectRecords(records=kept.get(subject, 0))
    left = ending.pop(0) if kept.get(subject) else 0
    found, kept[subject] = kept.get(subject, 0), left
    return SubjectRecords(records=found, ending=left)
"""
FAILS = """
async def erase(bundle, subject, *, dry_run, audit):
    raise ValueError("a secret")
"""


class Shop:
    """A broker with a plug-in that keeps records of its own."""

    def __init__(self, folder: Path, idp: IdentityProvider, clock: TestClock, code: str) -> None:
        self.module: Any = import_module(install(folder, "shop", code, "erase=here('erase')"))
        resources = PluginResources((PluginResource("Bed", "flows", None),))
        self.running = running(idp, [user_app(idp)], clock=clock, plugins={"shop": resources})


@pytest.fixture
def shop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    identity_provider: IdentityProvider,
    test_clock: TestClock,
) -> Shop:
    monkeypatch.syspath_prepend(tmp_path)
    return Shop(tmp_path, identity_provider, test_clock, getattr(request, "param", PLUGIN))


async def test_a_plugins_records_are_counted_and_those_that_have_to_end_first_are_waited_for(shop: Shop) -> None:
    async with shop.running as harness:
        await harness.connected()
        assert 3 == (await harness.broker.erasure.find_records(ALICE)).counts()["pluginRecords"]
        assert [(["flows"], ALICE, True)] == shop.module.heard, "a look changes nothing"
        shop.module.ending[:] = [1, 1, 0, 0]
        waits = await harness.broker.erase(ALICE)
        assert (False, 1, 3) == (waits.done, waits.to_json()["ending"], waits.to_json()["pluginRecords"])
        assert await harness.grant("mail", ALICE) is not None, "nothing is removed from the store meanwhile"
        done = await harness.broker.erase(ALICE)
        assert (True, 0, 1) == (done.done, done.to_json()["ending"], done.to_json()["pluginRecords"])
        assert await harness.grant("mail", ALICE) is None
        assert (await harness.broker.erasure.find_records(ALICE)).empty


async def test_a_subject_of_which_only_a_plugin_keeps_something_is_erased(shop: Shop) -> None:
    shop.module.kept[BOB] = 1
    shop.module.ending[:] = [0, 0]
    async with shop.running as harness:
        assert not (await harness.broker.erasure.find_records(BOB)).empty
        assert (await harness.broker.erase(BOB)).done
        assert (0, 3) == (shop.module.kept[BOB], shop.module.kept[ALICE])


@pytest.mark.parametrize("shop", [FAILS], indirect=True)
async def test_a_plugin_that_fails_stops_the_erasure_and_is_named(shop: Shop) -> None:
    async with shop.running as harness:
        await harness.connected()
        with pytest.raises(BrokerError) as failed:
            await harness.broker.erase(ALICE)
        assert (Code.STORE_UNAVAILABLE, True) == (failed.value.code, "shop" in str(failed.value.note))
        assert "a secret" not in f"{failed.value!r}{failed.value.note}"
        assert await grant_lives(harness)


@pytest.mark.parametrize("shop", [FAILS], indirect=True)
@pytest.mark.parametrize(
    "found", ["None", "3", "SubjectRecords(records=-5)", "SubjectRecords(ending=True)", "exit(13)"]
)
async def test_what_no_plugin_can_have_erased_is_refused_with_its_name(shop: Shop, found: str) -> None:
    exec(f"async def erase(*_, **__):\n    return {found}\n", vars(shop.module))  # noqa: S102
    async with shop.running as harness:
        await harness.connected()
        with pytest.raises(BrokerError) as failed:
            await harness.broker.erase(ALICE)
        assert "the plug-in shop does not erase: " in failed.value.note
        assert Code.STORE_UNAVAILABLE == failed.value.code
        assert await grant_lives(harness)


async def grant_lives(harness: Harness) -> bool:
    grant = await harness.grant("mail", ALICE)
    return grant is not None and not grant.revoked
