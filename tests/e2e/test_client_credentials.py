"""Client credentials against oidc-provider: every way to prove who we are, one fetch, a revocation, no browser."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey

from oauthbroker import Ready, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AuthMethod, Client, Endpoints, Owner, Redirect
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.testing import Canaries
from tests.e2e import authority
from tests.e2e.bundle import turn
from tests.e2e.served import LateClock
from tests.kit.running_broker import file_store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
METHODS: list[AuthMethod] = ["client_secret_basic", "client_secret_post", "private_key_jwt"]


def registered(method: AuthMethod, secret: str, key: ECKey) -> dict[str, Any]:
    proof: dict[str, Any] = {"client_secret": secret}
    if method == "private_key_jwt":
        public = {**key.as_dict(private=False), "kid": "k"}
        proof = {"jwks": {"keys": [public]}, "token_endpoint_auth_signing_alg": "ES256"}
    arrival = {"redirect_uris": [], "response_types": [], "grant_types": ["client_credentials"]}
    return {"client_id": "machine", "token_endpoint_auth_method": method, **arrival, **proof}


@pytest.mark.parametrize("method", METHODS)
async def test_a_token_comes_without_a_browser_and_ends_when_it_is_revoked(
    canaries: Canaries, tmp_path: Path, method: AuthMethod
) -> None:
    secret, key = canaries.mint("client secret").reveal(), ECKey.generate_key("P-256", private=True)
    text = json.dumps({**key.as_dict(private=True), "kid": "k"}) if method == "private_key_jwt" else secret
    stranger = canaries.mint("client secret") if method != "private_key_jwt" else Secret(_stranger())
    client = Client("machine", stranger, method, later_secrets=(Secret(text),))
    clock = LateClock()
    async with authority.running([registered(method, secret, key)]) as provider:
        app = App(
            name="machine", provider="own", flow="clientCredentials", subject_mode="global", client=client, endpoints=Endpoints(issuer=provider.issuer), scopes=("team",),
            redirect=Redirect("", ""), owner=Owner(),
        )  # fmt: skip
        settings = Settings(weaken=frozenset({"plainHttpProvider"}))
        log = json_log(io.StringIO(), clock)
        async with open_broker(
            Bundle(settings, {"machine": app}), env={}, clock=clock, store=file_store(tmp_path, clock),
            audit=AuditList(), log=log,
        ) as broker:  # fmt: skip
            oauth = broker.oauth(turn())
            first = await oauth.get_access_token("machine")
            assert isinstance(first, Ready)
            canaries.add(first.access_token, "access token")
            assert ("team",) == first.scopes
            again = await oauth.get_access_token("machine", ["team"])
            assert isinstance(again, Ready)
            assert first.access_token == again.access_token
            assert (1, 1) == (await provider.count("token", 200), await provider.count("token", 401))
            clock.advance(600)  # the default of oidc-provider for such tokens
            second = await oauth.get_access_token("machine")
            assert isinstance(second, Ready)
            canaries.add(second.access_token, "access token")
            assert (2, 1) == (await provider.count("token", 200), await provider.count("token", 401))
            assert await broker.revoke("machine", subject="example:team:T111")
            assert 1 == await provider.count("revocation", 200)
            assert await broker.pending(turn()) is None


def _stranger() -> str:
    return json.dumps({**ECKey.generate_key("P-256").as_dict(private=True), "kid": "k"})
