"""Two tenants of one user at Zendesk and at Salesforce, by the presets' `connectParams`: played with browsers."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from oauthbroker import Turn
from oauthbroker.config import load
from oauthbroker.model.apps import Client
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.preset_demands import CLIENT_ID, Call
from tests.kit.preset_player import _SECRETS, Player, _key, _moved
from tests.kit.preset_plays import plays
from tests.kit.preset_stage import BUNDLE, LATER
from tests.kit.running_broker import Harness, running, turn
from tests.unit.protocol.kit import RawServer

USER = "acme:user:7"
PARAMS: dict[str, dict[str, dict[str, str]]] = {
    "zendesk": {"subdomain": {"title": "Your Zendesk address"}},
    "salesforce": {"host": {"title": "Your My Domain", "within": ".my.salesforce.com"}},
}


@dataclass
class Tenants:
    """A broker with one app of a preset, and a player for each tenant."""

    harness: Harness
    players: dict[str, Player]

    @property
    def turn(self) -> Turn:
        base = turn(user=USER)
        assert base.auth is not None
        return replace(base, auth=replace(base.auth, accounts={"OAuthApp/desk": [*self.players]}))

    async def ask(self, tenant: str) -> Any:
        return await self.harness.ask("desk", of=self.turn, account=tenant)

    async def connect(self, tenant: str) -> None:
        asked, browser = await self.ask(tenant), self.harness.browser()
        assert isinstance(asked, AuthorizationRequired), asked
        player = self.players[tenant]
        page = await browser.follow(player.authorize(await self.harness.to_provider(asked, browser)))
        assert page.status in {200, 303}, (page.text, player.complaints)

    async def served(self, tenant: str) -> str:
        """Return the name of the token that a tool gets."""
        ready, player = await self.ask(tenant), self.players[tenant]
        assert isinstance(ready, Ready), (ready, player.complaints)
        names = [name for name, text in player.secrets.items() if text == ready.access_token.reveal()]
        return names[0] if names else "another tenant's"


@asynccontextmanager
async def tenants_of(provider: str, folder: Path, clock: TestClock, canaries: Canaries) -> AsyncIterator[Tenants]:
    play = next(play for play in plays() if play.provider == provider)
    spec = {
        "provider": provider,
        "flow": "authorizationCode",
        "subjectMode": "user",
        "connectParams": PARAMS[provider],
        "client": {"clientId": CLIENT_ID, "clientSecret": {"valueFrom": {"env": "PLAYED_SECRET"}}},
        "scopes": play.app.scopes,
        "owner": {"binding": "localOperator"},
    }
    app = {**BUNDLE, "kind": "OAuthApp", "metadata": {"name": "desk"}, "spec": spec}
    folder.joinpath("bundle.yaml").write_text(yaml.safe_dump_all([BUNDLE, app]), "utf-8")
    loaded = load(folder).apps["desk"].app
    made = replace(loaded, client=Client(CLIENT_ID, canaries.mint("client secret"), loaded.client.auth_method))
    players: dict[str, Player] = {}

    async def handle(reader: StreamReader, writer: StreamWriter) -> None:
        host = Call.parsed(server.requests[-1]).path.split("/")[1]
        await players[host.partition(".")[0]].handle(reader, writer)

    server = RawServer(handle)
    async with server:
        made = replace(made, endpoints=_moved(made, server.url))
        [name] = PARAMS[provider]
        for tenant in ("acme", "globex"):
            secrets = {word: canaries.mint(f"{word} of {tenant}").reveal() for word in _SECRETS}
            key = _key(made.habits.id_token_algorithms[0])
            player = players[tenant] = Player(play, made.at({name: tenant}), clock, secrets, key)
            player.server = server
        nobody = cast("IdentityProvider", None)  # the players are the provider
        async with running(nobody, [made], clock=clock) as harness:
            yield Tenants(harness, players)
            assert [] == [each for player in players.values() for each in player.complaints]


@pytest.mark.parametrize("provider", PARAMS)
async def test_two_tenants_of_one_user_have_tokens_of_their_own(
    provider: str, tmp_path: Path, test_clock: TestClock, canaries: Canaries
) -> None:
    async with tenants_of(provider, tmp_path, test_clock, canaries) as tenants:
        for tenant in tenants.players:
            await tenants.connect(tenant)
        assert ["access", "access"] == [await tenants.served(tenant) for tenant in tenants.players]
        test_clock.advance(LATER)
        assert "access2" == await tenants.served("globex")
        assert [0, 1] == [player.calls.count("refresh") for player in tenants.players.values()]
        assert "access2" == await tenants.served("acme")
        assert await tenants.harness.broker.revoke("desk", subject=USER, account="acme")
        assert isinstance(await tenants.ask("acme"), AuthorizationRequired)
        assert "access2" == await tenants.served("globex")
        assert [] == tenants.players["globex"].revoked
