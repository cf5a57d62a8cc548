"""Case 33 through the story: the provider's signing keys change, break, vanish or swell while people connect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.testing.provider import FOREVER
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, Harness, turn

pytestmark = pytest.mark.case("33")
BROKEN: list[Any] = [
    None,
    7,
    "key",
    {},
    {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "rs-1"},
    {"kty": "EC", "crv": "P-9"},
]


async def connect(harness: Harness, scope: str, app: str = "mail") -> Any:
    return await harness.connect(await harness.ask_link(app, [scope]))


async def test_keys_rotated_just_before_signing_cost_one_fetch(harness: Harness) -> None:
    await connect(harness, "read")
    assert 1 == harness.idp.count("jwks")
    harness.idp.keys.rotate()
    assert 200 == (await connect(harness, "write")).status
    assert 200 == (await connect(harness, "admin")).status
    assert 2 == harness.idp.count("jwks")


async def test_a_second_rotation_within_the_minute_is_seen_after_it(harness: Harness) -> None:
    """One fetch a minute is the price of not being a tool for floods: the person is asked to try again."""
    await connect(harness, "read")
    harness.idp.keys.rotate()
    await connect(harness, "write")
    harness.idp.keys.rotate()
    assert_error_page(await connect(harness, "admin"), Code.ID_TOKEN_INVALID)
    assert 2 == harness.idp.count("jwks")
    harness.clock.advance(60)
    assert 200 == (await connect(harness, "admin")).status
    assert 3 == harness.idp.count("jwks")


async def test_keys_that_change_under_the_same_name_are_fetched_too(harness: Harness) -> None:
    """The set knows a key of the name that the provider will sign with, and it is not that key."""
    present = harness.idp.keys.jwks()["keys"][0]
    harness.idp.keys.extra = [{**present, "kid": "rs-2"}]
    assert 200 == (await connect(harness, "read")).status
    harness.idp.keys.extra = []
    harness.idp.keys.rotate()
    assert 200 == (await connect(harness, "write")).status
    assert 2 == harness.idp.count("jwks")


@pytest.mark.parametrize("names", [True, False])
async def test_a_set_without_names_is_fetched_again_when_its_only_key_does_not_fit(
    harness: Harness, names: bool
) -> None:
    harness.idp.script.jwks.alter(_only_rsa, times=FOREVER)
    if not names:
        harness.idp.script.jwks.alter(_nameless, times=FOREVER)
        harness.idp.script.token.alter_id_token(header={"kid": None}, times=FOREVER)
    assert 200 == (await connect(harness, "read")).status
    harness.idp.keys.rotate()
    assert 200 == (await connect(harness, "write")).status
    assert 2 == harness.idp.count("jwks")


async def test_broken_entries_hide_no_good_one(harness: Harness) -> None:
    harness.idp.keys.extra = BROKEN
    assert 200 == (await connect(harness, "read")).status


@pytest.mark.parametrize("status", [500, 503])
async def test_a_dead_key_set_is_a_passing_failure_that_does_not_outlive_itself(harness: Harness, status: int) -> None:
    harness.idp.script.jwks.answer(status, times=FOREVER)
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), Code.PROVIDER_UNREACHABLE)
    assert ["providerUnreachable"] == [event["payload"]["code"] for event in await harness.events()]
    assert (None, Code.PROVIDER_UNREACHABLE) == (await harness.grant(), (await harness.session(asked)).failure)
    harness.idp.script.jwks.reset()
    harness.clock.advance(30)
    assert 200 == (await connect(harness, "read")).status


async def test_a_rotation_whose_key_set_is_dead_is_no_forgery(harness: Harness) -> None:
    """The broker cannot know, so it does not report a forgery. It fetches the set again after a minute at the earliest."""
    await connect(harness, "read")
    harness.idp.keys.rotate()
    harness.idp.script.jwks.answer(500, times=FOREVER)
    for app in ("mail", "files"):
        assert_error_page(await connect(harness, "write", app), Code.PROVIDER_UNREACHABLE)
    assert 2 == harness.idp.count("jwks")
    harness.idp.script.jwks.reset()
    harness.clock.advance(60)
    assert 200 == (await connect(harness, "write")).status


async def test_a_key_set_of_five_megabytes_is_cut_off(harness: Harness) -> None:
    harness.idp.script.jwks.alter(lambda found: {**found, "pad": "x" * 5_000_000})
    assert_error_page(await connect(harness, "read"), Code.PROVIDER_UNREACHABLE)
    assert await harness.grant() is None


async def test_a_flood_of_unknown_names_costs_one_fetch_a_minute(harness: Harness) -> None:
    await connect(harness, "read")
    harness.idp.script.token.alter_id_token(header={"kid": "nobody-knows"}, key="strange", times=FOREVER)
    for minute in range(2):
        asked = [await harness.ask_link("files", of=turn(instance=f"{minute}-{number}")) for number in range(6)]
        pages = await asyncio.gather(*(harness.connect(each) for each in asked))
        for page in pages:
            assert_error_page(page, Code.ID_TOKEN_INVALID)
        assert 2 + minute == harness.idp.count("jwks")
        harness.clock.advance(60)
    assert await harness.grant("files", ALICE) is None


def _only_rsa(found: dict[str, Any]) -> dict[str, Any]:
    return {"keys": [key for key in found["keys"] if key["kty"] == "RSA"]}


def _nameless(found: dict[str, Any]) -> dict[str, Any]:
    return {"keys": [{name: value for name, value in key.items() if name != "kid"} for key in found["keys"]]}
