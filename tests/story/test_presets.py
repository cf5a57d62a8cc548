"""Every preset is played: a person connects at a provider that demands and answers what its documentation says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from oauthbroker.apps import Client, OAuthApp
from oauthbroker.config import load
from oauthbroker.errors import Code
from oauthbroker.providers import presets
from oauthbroker.results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.turn import Turn
from tests.house import BASE, House, running, turn
from tests.preset_coverage import unplayed
from tests.preset_player import CLIENT_ID, Player, playing
from tests.preset_plays import Play, Refusal, plays, programmes
from tests.story.test_callback import assert_says

REFUSALS = [
    pytest.param(play, refusal, id=f"{play}: {refusal.at} {refusal.code} {number}")
    for play in plays()
    for number, refusal in enumerate(play.refusals, 1)
]


def cases(wanted: Callable[[Play], object] = lambda play: True) -> list[Any]:
    return [pytest.param(play, id=str(play)) for play in plays() if wanted(play)]


BUNDLE = {
    "apiVersion": "agents.example.io/v1alpha1",
    "kind": "Broker",
    "metadata": {"name": "broker"},
    "spec": {"publicBaseUrl": BASE, "weaken": ["plainHttpProvider"]},
}


def app_of(play: Play, folder: Path, canaries: Canaries) -> OAuthApp:
    """The app as the loader makes it out of what the play's app says, with a fresh secret."""
    said = play.app.model_dump(by_alias=True, exclude_unset=True)
    method = said.pop("authMethod", "") or play.preset.auth_method
    anybody = play.app.subject_mode == "global" and play.app.flow != "clientCredentials"  # where nobody is asked
    owner = {**({"authorizers": "anyone"} if anybody else {}), **said.pop("owner", {})}
    client: dict[str, Any] = {"clientId": CLIENT_ID, "authMethod": method}
    if method != "none":
        client["clientSecret"] = {"valueFrom": {"env": "PLAYED_SECRET"}}
    spec = {"provider": play.provider, "flow": play.app.flow, "subjectMode": play.app.subject_mode, "client": client}
    app = {**BUNDLE, "kind": "OAuthApp", "metadata": {"name": "played"}}
    app["spec"] = {**spec, **said, **({"owner": owner} if owner else {})}
    folder.joinpath("bundle.yaml").write_text(yaml.safe_dump_all([BUNDLE, app]), "utf-8")
    loaded = load(folder).apps["played"].app
    secret = None if method == "none" else canaries.mint("client secret")
    return replace(loaded, client=Client(CLIENT_ID, secret, loaded.client.auth_method))


@asynccontextmanager
async def stage(play: Play, folder: Path, clock: TestClock, canaries: Canaries) -> AsyncIterator[tuple[House, Player]]:
    async with playing(play, app_of(play, folder, canaries), clock, canaries) as player:
        nobody = cast("IdentityProvider", None)  # the player is the provider
        async with running(nobody, [player.app], clock=clock) as house:
            yield house, player
            assert [] == player.complaints


def turn_of(play: Play) -> Turn:
    is_user = play.app.subject_mode == "user"
    return turn(user=play.subject if is_user else None, team=None if is_user else play.subject)


async def ask(house: House, play: Play) -> Any:
    return await house.ask("played", of=turn_of(play))


async def agree(house: House, player: Player) -> Page | None:
    """A person goes all the way; nobody does where the flow needs nobody."""
    result = await ask(house, player.play)
    if not isinstance(result, AuthorizationRequired):
        return None
    if result.device_code is not None:
        return await agree_elsewhere(house, player, result)
    browser = house.browser()
    return await browser.follow(player.authorize(await house.to_provider(result, browser)))


async def agree_elsewhere(house: House, player: Player, result: AuthorizationRequired) -> None:
    """A person types the code into some other screen between our first poll and the second."""
    said = player.play.answers.device
    assert result.device_code is not None
    assert said is not None
    assert said.body["user_code"] == result.device_code.user_code
    assert said.body.get("verification_uri", said.body.get("verification_url")) == result.device_code.verification_uri
    for polls in range(1, 3):
        player.clock.advance(result.device_code.interval)
        for _ in range(400):
            if player.calls.count("token") >= polls:
                break
            await asyncio.sleep(0.005)
    await house.broker.wait(result.auth_session_id, timeout=5)


def told(play: Play, ready: Any, player: Player, token: str) -> dict[str, Any]:
    """A result in the play's own words; the right token must be in it."""
    assert isinstance(ready, Ready), (ready, player.complaints)
    assert player.secrets[token] == ready.access_token.reveal()
    left = None if ready.expires_at is None else round((ready.expires_at - player.clock.now()).total_seconds())
    return {"scopes": sorted(ready.scopes), "lifetime": left}


@pytest.mark.parametrize("play", cases())
async def test_a_person_connects_as_the_documentation_says(
    play: Play, tmp_path: Path, test_clock: TestClock, canaries: Canaries
) -> None:
    async with stage(play, tmp_path, test_clock, canaries) as (house, player):
        page = await agree(house, player)
        assert page is None or page.status in {200, 303}, (page.text, player.complaints)
        expected = {"scopes": sorted(play.result.scopes), "lifetime": play.result.lifetime_seconds}
        assert expected == told(play, await ask(house, play), player, "access")
        grant = await house.grant("played", play.subject)
        assert grant is not None
        assert play.result.refreshable == (bool(grant.token and grant.token.refresh_token))
        body = play.answers.token.body
        kept = {name for name in play.preset.keeps if isinstance(body, dict) and name in body}
        assert kept == set(grant.provider_data)


@pytest.mark.parametrize("play", cases(lambda play: play.result.after_refresh))
async def test_its_tokens_are_renewed_as_the_documentation_says(
    play: Play, tmp_path: Path, test_clock: TestClock, canaries: Canaries
) -> None:
    """Twice: the second request shows which refresh token was kept."""
    after = play.result.after_refresh
    assert after is not None
    async with stage(play, tmp_path, test_clock, canaries) as (house, player):
        await agree(house, player)
        for token in ("access2", "access3"):
            test_clock.advance(366 * 24 * 3600)
            expected = {"scopes": sorted(after.scopes), "lifetime": after.lifetime_seconds}
            assert expected == told(play, await ask(house, play), player, token)
        assert 2 == player.calls.count("refresh")


@pytest.mark.parametrize("play, refusal", REFUSALS)
async def test_its_way_to_say_no_is_understood(
    play: Play, refusal: Refusal, tmp_path: Path, test_clock: TestClock, canaries: Canaries
) -> None:
    async with stage(play, tmp_path, test_clock, canaries) as (house, player):
        if refusal.at != "refresh":
            player.refusing[refusal.at] = refusal.answer
            page = await agree(house, player)
            if page is not None:
                assert_says(page, Code(refusal.code))
                return
            result = await ask(house, play)  # nobody was asked: the tool is told
            assert isinstance(result, Failed), result
            assert Code(refusal.code) is result.code
            return
        await agree(house, player)
        player.refusing["refresh"] = refusal.answer
        test_clock.advance(366 * 24 * 3600)
        result = await ask(house, play)
        if refusal.code == "reauth":
            assert isinstance(result, AuthorizationRequired), result
        else:
            assert isinstance(result, Failed), result
            assert Code(refusal.code) is result.code


@pytest.mark.parametrize("play", cases(lambda play: play.expects.revoke))
async def test_a_revocation_reaches_it_in_its_own_way(
    play: Play, tmp_path: Path, test_clock: TestClock, canaries: Canaries
) -> None:
    async with stage(play, tmp_path, test_clock, canaries) as (house, player):
        await agree(house, player)
        assert isinstance(await ask(house, play), Ready)
        assert await house.broker.revoke("played", subject=play.subject)
        for _ in range(400):
            if player.revoked:
                break
            await asyncio.sleep(0.005)
        demand = play.expects.revoke
        assert demand is not None
        both = {"access", "refresh"} if play.result.refreshable else {"access"}
        assert (both if demand.token == "both" else {demand.token}) == set(player.revoked)


# --- the set as a whole


def test_every_preset_has_a_play_and_every_play_a_preset():
    assert set(presets()) == set(programmes())
    assert all(it.plays for it in programmes().values())


@pytest.mark.parametrize("name", presets())
def test_every_quirk_of_a_preset_is_played(name: str):
    played = [play for play in plays() if play.provider == name]
    assert [] == unplayed(presets()[name], played)


def test_there_are_forty():
    assert len(presets()) >= 40
