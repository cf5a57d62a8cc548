"""The peers, by their own packages: each gives "the valid token for this app and this account, please" as one call.

They need the environment `.venv-peers`; no module of the broker is imported here. No peer talks to a network.
"""

from __future__ import annotations

import base64
import json
import os
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

TOKEN = "t" * 900
REFRESH = "r" * 200
LIFE = 3600
AUTHORITY = "https://login.microsoftonline.com/tenant"
SERVER = "https://mcp.example/mcp"


@dataclass(frozen=True)
class Peer:
    """A call, which returns at once or is awaited, the packages behind it, and what a write of one more token does."""

    packages: tuple[str, ...]
    call: Callable[[], object] | None = None
    awaited: Callable[[], Awaitable[object]] | None = None
    write: Callable[[], object] | None = None

    @property
    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.packages}


class NoNetwork:
    """Answers what MSAL reads about its authority, and nothing else."""

    status_code = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    text = json.dumps(
        {
            "issuer": f"{AUTHORITY}/v2.0",
            "authorization_endpoint": f"{AUTHORITY}/oauth2/v2.0/authorize",
            "token_endpoint": f"{AUTHORITY}/oauth2/v2.0/token",
        }
    )

    def get(self, _url: str, **_options: Any) -> NoNetwork:
        return self

    post = get

    def raise_for_status(self) -> None:
        """Nothing: it is 200."""

    def close(self) -> None:
        """Nothing is open."""


def _event(number: int) -> dict[str, Any]:
    info = base64.urlsafe_b64encode(json.dumps({"uid": f"u{number}", "utid": "tenant"}).encode()).decode().rstrip("=")
    return {
        "client_id": "client",
        "scope": ["read"],
        "token_endpoint": f"{AUTHORITY}/oauth2/v2.0/token",
        "response": {
            "access_token": TOKEN,
            "refresh_token": REFRESH,
            "expires_in": LIFE,
            "token_type": "Bearer",
            "client_info": info,
        },
    }


def _msal(cache: Any, grants: int) -> tuple[Callable[[], object], Callable[[], object]]:
    import msal

    app = msal.PublicClientApplication(
        "client", authority=AUTHORITY, token_cache=cache, http_client=NoNetwork(), instance_discovery=False
    )
    [account] = [each for each in app.get_accounts() if each["home_account_id"] == "u0.tenant"]
    numbers = iter(range(grants, 10**9))

    def call() -> object:
        found = app.acquire_token_silent(["read"], account=account)
        if not found or "access_token" not in found:
            raise RuntimeError("no token")
        return found

    return call, lambda: cache.add(_event(next(numbers)))


def msal_memory(grants: int, _folder: Path) -> Peer:
    import msal

    cache = msal.TokenCache()
    for number in range(grants):
        cache.add(_event(number))
    call, write = _msal(cache, grants)
    return Peer(("msal",), call, write=write)


def msal_file(grants: int, folder: Path) -> Peer:
    """The cache is filled in memory and saved once: each `add` of a persisted cache writes the whole file."""
    import msal
    import msal_extensions

    filled = msal.SerializableTokenCache()
    for number in range(grants):
        filled.add(_event(number))
    persistence = msal_extensions.FilePersistence(str(folder / "msal.json"))
    persistence.save(filled.serialize())
    call, write = _msal(msal_extensions.PersistedTokenCache(persistence), grants)
    return Peer(("msal", "msal-extensions"), call, write=write)


def authlib_session(grants: int, _folder: Path) -> Peer:
    """One object holds one grant; the others are there to be found among."""
    from authlib.integrations.requests_client import OAuth2Session

    token = {"access_token": TOKEN, "refresh_token": REFRESH, "token_type": "Bearer", "expires_at": time.time() + LIFE}
    sessions = {number: OAuth2Session("client", token=dict(token)) for number in range(min(grants, 1000))}

    def call() -> object:
        session = sessions[0]
        if not session.ensure_active_token():
            raise RuntimeError("no token")
        return session.token["access_token"]

    return Peer(("authlib",), call)


def _tokens() -> Any:
    from mcp.shared.auth import OAuthToken

    return OAuthToken(access_token=TOKEN, refresh_token=REFRESH, expires_in=LIFE, token_type="Bearer")


async def _fastmcp(store: Any, grants: int) -> Peer:
    from fastmcp.client.auth.oauth import TokenStorageAdapter

    for number in range(grants):
        await TokenStorageAdapter(store, f"{SERVER}/{number}").set_tokens(_tokens())
    adapter = TokenStorageAdapter(store, f"{SERVER}/0")

    async def call() -> object:
        found = await adapter.get_tokens()
        if found is None:
            raise RuntimeError("no token")
        return found

    return Peer(("fastmcp", "py-key-value-aio"), awaited=call)


async def fastmcp_memory(grants: int, _folder: Path) -> Peer:
    from key_value.aio.stores.memory import MemoryStore

    return await _fastmcp(MemoryStore(max_entries_per_collection=grants * 2 + 10), grants)


async def fastmcp_files(grants: int, folder: Path) -> Peer:
    from key_value.aio.stores.filetree import FileTreeStore
    from key_value.aio.stores.filetree import FileTreeV1CollectionSanitizationStrategy as Collections
    from key_value.aio.stores.filetree import FileTreeV1KeySanitizationStrategy as Keys

    warnings.simplefilter("ignore")
    store = FileTreeStore(
        data_directory=folder,
        key_sanitization_strategy=Keys(folder),
        collection_sanitization_strategy=Collections(folder),
    )
    return await _fastmcp(store, grants)


class Stored:
    """The SDK's token storage, in memory."""

    def __init__(self, tokens: Any, client: Any) -> None:
        self.tokens, self.client = tokens, client

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client: Any) -> None:
        self.client = client


class AsksTheUser(Exception):
    """A provider wants the user to log in."""


async def ask_the_user(*_: object) -> Any:
    raise AsksTheUser("it asks the user to log in")


def mcp_provider(server: str, stored: Stored) -> Any:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    described = OAuthClientMetadata.model_validate({"redirect_uris": ["http://127.0.0.1:3000/callback"]})
    return OAuthClientProvider(server, described, stored, ask_the_user, ask_the_user)


def mcp_client() -> Any:
    from mcp.shared.auth import OAuthClientInformationFull

    return OAuthClientInformationFull.model_validate(
        {"client_id": "client", "redirect_uris": ["http://127.0.0.1:3000/callback"]}
    )


def mcp_sdk(_grants: int, _folder: Path) -> Peer:
    """Its flow up to the request that carries the token: one provider holds one grant."""
    import httpx2

    provider, request = mcp_provider(SERVER, Stored(_tokens(), mcp_client())), httpx2.Request("POST", SERVER)

    async def call() -> object:
        flow = provider.async_auth_flow(request)
        asked = await anext(flow)
        await flow.aclose()
        return asked.headers["Authorization"]

    return Peer(("mcp",), awaited=call)


def yardstick(_grants: int, folder: Path) -> Peer:
    """A stat, a write of one line and a lookup: both environments do these alike if ratios across them hold."""
    file, held = folder / "yardstick", dict.fromkeys(range(1000), TOKEN)
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = b"x" * 300 + b"\n"

    def call() -> object:
        file.stat()
        os.write(log, line)
        return held[500]

    return Peer((), call)


PEERS: dict[str, Callable[[int, Path], Peer | Awaitable[Peer]]] = {
    "yardstick": yardstick,
    "MSAL, memory": msal_memory,
    "MSAL, file": msal_file,
    "Authlib, ensure_active_token": authlib_session,
    "MCP SDK, provider": mcp_sdk,
    "FastMCP, memory": fastmcp_memory,
    "FastMCP, files": fastmcp_files,
}
