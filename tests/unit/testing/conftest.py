"""A small client of its own, so that the provider is not checked by the product it is meant to check."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from oauthbroker.testing import Client, IdentityProvider, TestClock
from oauthbroker.testing.provider.token_table import s256

REDIRECT = "http://127.0.0.1:9/callback/bot"


@dataclass
class RelyingParty:
    """One client in one authorization."""

    idp: IdentityProvider
    http: httpx2.AsyncClient
    client_id: str = "bot"
    scope: str = "openid email chat:write"
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def authorization_url(self, **changes: Any) -> str:
        fields = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "scope": self.scope,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": s256(self.verifier),
            "code_challenge_method": "S256",
            **changes,
        }
        return (
            self.idp.url("/authorize") + "?" + urlencode({k: v for k, v in fields.items() if v is not None}, doseq=True)
        )

    async def code(self, account: str = "alice", **changes: Any) -> str:
        return answered(await self.idp.agree(self.authorization_url(**changes), account))["code"]

    async def post(self, path: str, **form: Any) -> httpx2.Response:
        client = self.idp.client(self.client_id)
        if client.auth_method == "client_secret_basic":
            credentials = (self.client_id, client.reveal_secret())
            return await self.http.post(self.idp.url(path), data=form, auth=credentials)
        extra = {"client_secret": client.reveal_secret()} if client.auth_method == "client_secret_post" else {}
        return await self.http.post(self.idp.url(path), data={**form, "client_id": self.client_id, **extra})

    async def exchange(self, code: str, **changes: Any) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": self.verifier,
        }
        return await self.post("/token", **{**form, **changes})

    async def refresh(self, token: str, **changes: Any) -> httpx2.Response:
        return await self.post("/token", grant_type="refresh_token", refresh_token=token, **changes)

    async def connect(self, account: str = "alice") -> dict[str, Any]:
        answer = await self.exchange(await self.code(account))
        assert 200 == answer.status_code, answer.text
        return dict(answer.json())

    async def get(self, path: str, token: str | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.http.get(self.idp.url(path), headers=headers)


def answered(callback_url: str) -> dict[str, str]:
    """The fields of a callback URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(callback_url).query).items()}


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
async def idp(clock: TestClock) -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider(clock=clock, clients=[Client("bot", redirect_uris=(REDIRECT,))]) as provider:
        yield provider


@pytest.fixture
async def party(idp: IdentityProvider) -> AsyncIterator[RelyingParty]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield RelyingParty(idp, http)
