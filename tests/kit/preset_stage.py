"""A play from its beginning to its end: the loader's app, a broker, a person, and the provider that plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml

from oauthbroker.config import load
from oauthbroker.core.errors import Code
from oauthbroker.injection.targets import target_of
from oauthbroker.model.apps import App, Client, IdentityRule
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, SessionOutcome
from oauthbroker.model.turn import Turn
from oauthbroker.protocol.answer_checks import lookup
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.revocation_messages import revoke_response
from oauthbroker.providers.preset import PresetIdentity
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.callback_pages import assert_error_page
from tests.kit.preset_demands import CLIENT_ID
from tests.kit.preset_player import OF_THE_API, Player, playing
from tests.kit.preset_plays import AfterRefresh, Play, Refusal
from tests.kit.running_broker import BASE, Harness, running, turn

HALF_LIFE = 40 * 24 * 3600  # of a token of 60 days
LATER = 366 * 24 * 3600  # by then no token lives
BUNDLE = {
    "apiVersion": "agents.example.io/v1alpha1",
    "kind": "Broker",
    "metadata": {"name": "broker"},
    "spec": {"publicBaseUrl": BASE, "weaken": ["plainHttpProvider"]},
}


@dataclass
class Stage:
    """What the plays of a test have in common. `change` is what the app is given beside its preset; nothing, mostly."""

    folder: Path
    clock: TestClock
    canaries: Canaries
    change: Callable[[App], App] = lambda app: app

    async def live(self, play: Play) -> None:
        """A person consents, a tool's request has the token, and the tokens are refreshed: one grant has this life."""
        app = app_of(play, self.folder, self.canaries)
        async with self._set(play, app) as (harness, player):
            await connect(harness, player)
            if play.preset.api_hosts:
                await call_the_api(harness, player, app)
            if play.result.after_refresh:
                await refresh(harness, player, play.result.after_refresh)

    async def refuse(self, play: Play, refusal: Refusal) -> None:
        """The provider says no; the person, or the tool where there is none, is told our code for it."""
        async with self._set(play) as (harness, player):
            if refusal.at == "refresh":
                await agree(harness, player)
            player.refusing[refusal.at] = refusal.answer
            if play.app.flow == "deviceCode" and refusal.at != "refresh":
                asked = await ask(harness, play)
                assert (await agree_elsewhere(harness, player, asked)).code is Code(refusal.code)
                return
            page = await agree(harness, player) if refusal.at != "refresh" else None
            if page is not None:
                assert_error_page(page, Code(refusal.code))
                return
            result = await (ask_later(harness, player, "access") if refusal.at == "refresh" else ask(harness, play))
            if refusal.code == "reauth":
                assert isinstance(result, AuthorizationRequired), result
            else:
                assert isinstance(result, Failed), result
                assert Code(refusal.code) is result.code

    async def revoke(self, play: Play) -> None:
        """The provider hears of the tokens that it takes."""
        demand = play.expects.revoke
        assert demand is not None
        async with self._set(play) as (harness, player):
            await agree(harness, player)
            assert isinstance(await ask(harness, play), Ready)
            assert await harness.broker.revoke("played", subject=play.subject)
            await _until(lambda: bool(player.revoked or player.complaints), seconds=60)
            both = {"access", "refresh"} if play.result.refreshable else {"access"}
            assert (both if demand.token == "both" else {demand.token}) == set(player.revoked)
            said = play.answers.revoke
            body = said.body if isinstance(said.body, str) else json.dumps(said.body)
            assert revoke_response(
                player.app,
                ProviderResponse(status=said.status, content_type=said.type, retry_after=None, body=body.encode()),
            ), "not told dead"

    @asynccontextmanager
    async def _set(self, play: Play, app: App | None = None) -> AsyncIterator[tuple[Harness, Player]]:
        app = app or app_of(play, self.folder, self.canaries)
        async with playing(play, app, self.clock, self.canaries) as player:
            nobody = cast("IdentityProvider", None)  # the player is the provider
            async with running(nobody, [self.change(player.app)], clock=self.clock) as harness:
                yield harness, player
                assert [] == player.complaints


async def connect(harness: Harness, player: Player) -> None:
    """A person consents; the token, its scopes and its end are those of the play, and the kept members are kept."""
    play = player.play
    page = await agree(harness, player)
    assert page is None or page.status in {200, 303}, (page.text, player.complaints)
    expected = {"scopes": sorted(play.result.scopes), "lifetime": play.result.lifetime_seconds}
    exchanged = play.answers.exchange is not None and play.answers.exchange.status == 200
    held = "access2" if exchanged else "access"
    assert expected == reported(play, await ask(harness, play), player, held)
    grant = await harness.grant("played", play.subject)
    assert grant is not None
    assert play.result.refreshable == (bool(grant.token and grant.token.refresh_token))
    body = play.answers.token.body
    kept = {name for name in play.preset.keeps if isinstance(body, dict) and name in body}
    facts = play.result.facts
    assert kept | set(facts) == set(grant.provider_data)
    assert facts == {name: grant.provider_data[name] for name in facts}
    assert grant.open_facts is None
    owner = player.app.owner
    rule = owner.user_identity if play.app.subject_mode == "user" else owner.global_identity
    assert grant.account_name == account_name(play, rule)


async def call_the_api(harness: Harness, player: Player, app: App) -> None:
    """A tool's request to the first of the API's hosts has the token. The host is checked as it is written, and the
    request is sent to the player."""
    first = app.api.hosts[0]
    ready = await ask(harness, player.play)
    assert isinstance(ready, Ready), (ready, player.complaints)
    data = ready.provider_data
    url = app.api.base_url if isinstance(first, ApiHost) else f"https://{first.host_in(data)}/"
    target_of(app, "GET", url).check_account(data)
    async with harness.broker.oauth(turn_of(player.play)).client("played") as api:
        answer = await api.get(OF_THE_API)
    assert 200 == answer.status_code
    path = target_of(app, "GET", f"{url}{OF_THE_API[1:]}").path_for(data)
    assert f"GET {path}" == player.calls[-1]


async def refresh(harness: Harness, player: Player, after: AfterRefresh) -> None:
    """Twice: the second request shows which refresh token was kept."""
    play = player.play
    expected = {"scopes": sorted(after.scopes), "lifetime": after.lifetime_seconds}
    if play.answers.exchange is not None:  # an access token refreshes itself before its end
        player.clock.advance(HALF_LIFE)
        assert expected == reported(play, await ask(harness, play), player, "access3")
        return
    assert expected == reported(play, await ask_later(harness, player, "access"), player, "access2")
    assert expected == reported(play, await ask_later(harness, player, "access2"), player, "access3")
    assert 2 == player.calls.count("refresh")


def account_name(play: Play, rule: PresetIdentity | IdentityRule | None) -> str:
    """What people call the account: the fact that the rule names, or without one a claim of OpenID, in the play's own
    answers."""
    if rule is None or play.app.flow == "clientCredentials":
        return ""
    who = play.answers.user_info
    facts = {"tokenResponse": play.answers.token.body, "userInfo": who and who.body, "idToken": play.answers.id_token}
    is_openid = rule.source == "idToken" or (rule.source == "userInfo" and "userInfoKind" not in play.said_quirks)
    usual = ("preferred_username", "email", "name") if is_openid and play.app.subject_mode == "user" else ()
    found = (lookup(cast("Any", facts[rule.source]), path) for path in ((rule.name,) if rule.name else usual))
    return next((name for name in found if isinstance(name, str) and name), "")


def app_of(play: Play, folder: Path, canaries: Canaries) -> App:
    """The app as the loader makes it out of what the play's app says, with a fresh secret."""
    said = play.app.model_dump(by_alias=True, exclude_unset=True)
    method = said.pop("authMethod", "") or play.preset.auth_method
    anybody = play.app.subject_mode == "global" and play.app.flow != "clientCredentials"  # no person is asked
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


def turn_of(play: Play) -> Turn:
    is_user = play.app.subject_mode == "user"
    return turn(user=play.subject if is_user else None, team=None if is_user else play.subject)


async def ask(harness: Harness, play: Play) -> Any:
    return await harness.ask("played", of=turn_of(play))


async def ask_later(harness: Harness, player: Player, held: str) -> Any:
    """When the token `held` has ended; where none ever ends, the provider's API has refused it."""
    player.clock.advance(LATER)
    answer = await ask(harness, player.play)
    if isinstance(answer, Ready) and player.secrets[held] == answer.access_token.reveal():
        return await harness.broker.oauth(turn_of(player.play)).report_rejected("played", answer.access_token)
    return answer


async def agree(harness: Harness, player: Player) -> Page | None:
    """A person goes all the way, except where the flow needs no person."""
    result = await ask(harness, player.play)
    if not isinstance(result, AuthorizationRequired):
        return None
    if result.device_code is not None:
        await agree_elsewhere(harness, player, result)
        return None
    browser = harness.browser()
    return await browser.follow(player.authorize(await harness.to_provider(result, browser)))


async def agree_elsewhere(harness: Harness, player: Player, result: AuthorizationRequired) -> SessionOutcome:
    """A person types the code into some other screen between our first poll and the second. How it ended."""
    said = player.play.answers.device
    assert result.device_code is not None
    assert said is not None
    assert said.body["user_code"] == result.device_code.user_code
    assert said.body.get("verification_uri", said.body.get("verification_url")) == result.device_code.verification_uri
    polls = 1 if player.play.answers.pending is None else 2
    async with asyncio.timeout(60):
        while (heard := player.calls.count("token")) < polls and not player.complaints:
            await asyncio.sleep(0.1)  # the last answer is read; the next poll counts from there
            player.clock.advance(result.device_code.interval)
            await _until(partial(_has_polled, player, heard), seconds=3)
        if player.complaints:
            return SessionOutcome("pending")
        return await harness.broker.wait(result.auth_session_id, timeout=600)


def _has_polled(player: Player, before: int) -> bool:
    return player.calls.count("token") > before


async def _until(met: Callable[[], bool], *, seconds: float) -> None:
    """Looks often, in real time, and gives up quietly."""
    for _ in range(int(seconds / 0.005)):
        if met():
            return
        await asyncio.sleep(0.005)


def reported(play: Play, ready: Any, player: Player, token: str) -> dict[str, Any]:
    """A result in the play's own words; the right token must be in it."""
    assert isinstance(ready, Ready), (ready, player.complaints)
    assert player.secrets[token] == ready.access_token.reveal()
    left = None if ready.expires_at is None else round((ready.expires_at - player.clock.now()).total_seconds())
    return {"scopes": sorted(ready.scopes), "lifetime": left}
