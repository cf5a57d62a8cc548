"""Four ways to a first answer of an API: a login in the browser, the device flow, a key, and an MCP server's address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.e2e.person import Person
from tests.story.keys_kit import GOOD, key_api
from tests.story.mcp_apps_kit import mcp_site


@dataclass(frozen=True, kw_only=True)
class Way:
    """The words after `oauthbroker login`, the answers to its questions, the person's part in the browser, and the
    program's call. `files` are the resources that lie in the data folder beforehand, by their names."""

    title: str
    login: tuple[str, ...]
    answers: tuple[tuple[str, str], ...] = ()
    agree: Callable[[Person, str], Awaitable[None]] | None = None
    app: str
    call: str
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


async def agree_in_browser(person: Person, link: str) -> None:
    """From the broker's page to the provider's, and back."""
    await person.open(link)
    await person.press("Continue to")
    await person.press("Alice Arden")
    await person.press("Allow")
    await person.arrive()


async def agree_with_code(person: Person, link: str) -> None:
    """On the provider's pages for a device, whose link has the code."""
    await person.open(link)
    await person.press("Continue")
    await person.press("Alice Arden")
    await person.press("Allow")
    await person.page.get_by_role("heading", name="Your device is connected").wait_for()


@asynccontextmanager
async def ways(canaries: Canaries, port: int) -> AsyncIterator[list[Way]]:
    """Serve the provider, the API with a key and the MCP server for the block. `port` is that of the
    callbacks."""
    async with IdentityProvider(canaries=canaries) as idp, key_api() as api, mcp_site(idp) as site:
        idp.takes_clients = True
        mail = idp.register(Client("client-of-alice", redirect_uris=(f"http://127.0.0.1:{port}/oauth/callback/oidc",)))
        idp.register(Client("device-of-alice", auth_method="none", dialect="github", device_interval=1))
        yield [
            Way(
                title="browser login",
                login=("oidc",),
                answers=(
                    ("issuer: ", idp.issuer),
                    ("Client ID: ", mail.client_id),
                    ("Client secret: ", mail.reveal_secret()),
                    ("Scopes [profile email]: ", "read"),
                ),
                agree=agree_in_browser,
                app="oidc",
                call=f'get("{idp.url("/api/messages")}")',
            ),
            Way(
                title="device flow",
                login=("github", "--device"),
                answers=(
                    ("Client ID [to-be-asked]: ", "device-of-alice"),
                    ("Client secret (empty: the same): ", ""),
                    ("Scopes [repo]: ", ""),
                ),
                agree=agree_with_code,
                app="github",
                call=f'get("{idp.url("/api/messages")}")',
                files={"github": {"kind": "OAuthApp", "spec": _github(idp)}},
            ),
            Way(
                title="key",
                login=("meter",),
                answers=(("API key: ", GOOD),),
                app="meter",
                call=f'get("{api.url("/data")}")',
                files={"meter": {"kind": "CredentialApp", "spec": _meter(api.url(""))}},
            ),
            Way(
                title="MCP server",
                login=(site.url,),
                agree=agree_in_browser,
                app="mcp",
                call=f'post("{site.url}", json={{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}})',
            ),
        ]


OF_PERSON = {"subjectMode": "user", "accounts": "several", "owner": {"binding": "localOperator"}}


def _github(idp: IdentityProvider) -> dict[str, Any]:
    """The preset's app, at the scripted provider."""
    names = ("authorizationUrl", "tokenUrl", "deviceAuthorizationUrl", "issuer")
    return {
        **OF_PERSON,
        "provider": "github",
        "flow": "deviceCode",
        "client": {"clientId": "to-be-asked", "authMethod": "none"},
        "endpoints": {**{name: idp.endpoints[name] for name in names}, "userInfoUrl": idp.url("/user")},
        "scopes": ["repo"],
        "api": {"hosts": [idp.base_url]},
    }


def _meter(host: str) -> dict[str, Any]:
    return {
        **OF_PERSON,
        "title": "Meter",
        "fields": {"apiKey": {"title": "API key"}},
        "inject": {"headers": {"X-Api-Key": "{apiKey}"}},
        "verify": {"path": "/me", "account": "meter:user:{id}"},
        "api": {"hosts": [host]},
    }
