"""`oauthbroker.local("github")`: a person's own connection, for a program that this person runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.core.secret import Secret
from oauthbroker.core.spelling import nearest
from oauthbroker.injection.errors import AuthorizationRequiredError
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.local_turn import SUBJECT, local_turn
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.personal.command_lines import accounts_here, command_for, named
from oauthbroker.personal.local_broker import holds_no_app, open_local
from oauthbroker.personal.places import Places
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.wiring.running import Running

if TYPE_CHECKING:
    from oauthbroker.injection.http_libraries import AsyncHttpClient, HttpClient

T = TypeVar("T")


class LocalRefusedError(BrokerError):
    """There is no such connection, or it cannot be used so. The message says what to do."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(code)
        self._text = text

    def message(self, locale: Locale = "en") -> str:  # noqa: ARG002  (commands are English)
        return self._text


class _Opened(NamedTuple):
    """The person's `ctx.oauth`, the app, and what answers for both."""

    oauth: OAuthContext
    app: App
    manager: OAuthManager


def local(name: str, *, account: str | None = None) -> LocalConnection:
    """Return the connection that `oauthbroker login NAME` made. `account` is one of several: `login --account`."""
    return LocalConnection(name, account or "")


@dataclass(frozen=True, slots=True)
class LocalConnection:
    """One app of this person. Each method opens the store for itself, so that nothing has to be closed but clients.

    Its methods raise a BrokerError: `oauthAppNotFound` without an app, `grantNotFound` where the person has to log in,
    each with the command.
    """

    app: str
    account: str = ""

    @property
    def ref(self) -> str:
        """Return the app and its account as `app@account`; the app alone where it has one account."""
        return f"{self.app}@{self.account}" if self.account else self.app

    @contextmanager
    def client(self, *, library: ModuleType | None = None) -> Iterator[HttpClient]:
        """Give an HTTP client whose requests to the app's API carry the token, for a `with` block. `library` as
        `oauth.client` has it."""
        with _on_a_thread(opened(self)) as (found, loop):
            _wait(loop, check(self, found.oauth))
            with found.oauth.sync.client(self.ref, library=library) as client, _ending(self):
                yield client

    @asynccontextmanager
    async def async_client(self, *, library: ModuleType | None = None) -> AsyncIterator[AsyncHttpClient]:
        """Give the same for an `async with` block."""
        async with opened(self) as found:
            await check(self, found.oauth)
            async with found.oauth.client(self.ref, library=library) as client:
                with _ending(self):
                    yield client

    def token(self) -> Secret:
        """Return an access token that works now."""
        return self._ready()[0]

    def headers(self) -> dict[str, str]:
        """Return the header that carries the token at this provider."""
        token, app = self._ready()
        name, value = app.habits.token_proof(token)
        return {name: value.reveal()}

    def _ready(self) -> tuple[Secret, App]:
        with _on_a_thread(opened(self)) as (found, loop):
            return _wait(loop, ready(self, found)).access_token, found.app


@asynccontextmanager
async def opened(connection: LocalConnection) -> AsyncIterator[_Opened]:
    """Open the store for a block. Raises BrokerError where there is no such app, or no connection of it."""
    places = Places.of_user()
    places.check()
    if connection.app not in places.names():
        name, mark, account = connection.app.partition("@")
        text = f"{connection.app} is an account of {name}. Write oauthbroker.local({name!r}, account={account!r})."
        raise LocalRefusedError(Code.OAUTH_APP_NOT_FOUND, text if mark else _no_app(connection, places))
    async with open_local(places, only={connection.app}) as running:
        oauth, parts = running.broker.oauth(local_turn(connection.app, connection.account)), running.parts
        if connection.app not in parts.apps:
            raise LocalRefusedError(Code.OAUTH_APP_NOT_FOUND, holds_no_app(places, connection.app))
        app = parts.apps[connection.app]
        await _check_connected(connection, running, app)
        yield _Opened(oauth, app, parts.manager)


async def _check_connected(connection: LocalConnection, running: Running, app: App) -> None:
    """Raise BrokerError without a connection, before its provider is asked for a link."""
    key = app.credential
    if app.flow == "clientCredentials" or (key is not None and (key.team_fallback or key.outside or key.values)):
        return
    view = await running.parts.grants.view(GrantKey(app.name, SUBJECT, connection.account))
    if view is not None and view.health not in {"again", "ended"}:
        return
    there = [each.account async for each in running.parts.grants.views(app.name, SUBJECT) if not each.revoked]
    meant = "" if connection.account in there else accounts_here(app.name, connection.account, there)
    raise LocalRefusedError(Code.GRANT_NOT_FOUND, _advice(connection, "A login is missing", meant))


async def check(connection: LocalConnection, oauth: OAuthContext) -> None:
    """Raise BrokerError if the person has to log in first."""
    _raise(connection, await oauth.missing_consent(connection.ref))


async def ready(
    connection: LocalConnection, found: _Opened, scopes: Sequence[str] | None = None, min_ttl_seconds: int | None = None
) -> Ready:
    """Return a token. Raises BrokerError, also for an app whose credential is never handed out."""
    if found.app.credential is not None:
        text = f"The key of {connection.app} is never handed out. Use oauthbroker.local({connection.app!r}).client()."
        raise LocalRefusedError(Code.REQUEST_INVALID, text)
    return ready_of(connection, await found.oauth.get_access_token(connection.ref, scopes, min_ttl_seconds))


def ready_of(connection: LocalConnection, result: TokenResult) -> Ready:
    """Return the token. Raises BrokerError for the other results."""
    if not isinstance(result, Ready):
        _raise(connection, result)
    assert isinstance(result, Ready)  # noqa: S101  (the other two were raised)
    return result


@contextmanager
def _ending(connection: LocalConnection) -> Iterator[None]:
    """Say of a connection that has ended meanwhile what `check` says: nothing serves the link of a request here."""
    try:
        yield
    except AuthorizationRequiredError:
        ended = True
    else:
        ended = False
    if ended:
        raise LocalRefusedError(Code.GRANT_NOT_FOUND, _advice(connection, "The connection has ended"))


def _raise(connection: LocalConnection, result: AuthorizationRequired | Failed | None) -> None:
    if isinstance(result, AuthorizationRequired):
        raise LocalRefusedError(Code.GRANT_NOT_FOUND, _advice(connection, "A login is missing"))
    if isinstance(result, Failed):
        raise LocalRefusedError(result.code, result.message)


def _no_app(connection: LocalConnection, places: Places) -> str:
    """Return what to do without an app of this name: the nearest one that is here, or can be made."""
    known = {*presets(), *credential_presets()}
    if connection.app in known:
        return _advice(connection, "There is no app")
    meant = nearest(connection.app, {*known, *places.names()})
    more = f"Did you mean {meant}?" if meant else "Your apps: oauthbroker status. Presets: oauthbroker providers list"
    if meant and meant not in places.names():
        more = f"{more} Run: {command_for('login', meant, connection.account)}"
    return f"There is no app for {named(connection.app, connection.account)}. {more}"


def _advice(connection: LocalConnection, what: str, meant: str = "") -> str:
    app, account = connection.app, connection.account
    return " ".join(
        filter(None, (f"{what} for {named(app, account)}.", meant, f"Run: {command_for('login', app, account)}"))
    )


@contextmanager
def _on_a_thread(opening: AbstractAsyncContextManager[T]) -> Iterator[tuple[T, asyncio.AbstractEventLoop]]:
    """Run an async context on an event loop of its own thread for the block, since the caller's may be running one."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="oauthbroker-local", daemon=True)
    thread.start()
    try:
        found = _wait(loop, _entered(opening))
        try:
            yield found, loop
        finally:
            _wait(loop, _left(opening))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _entered(opening: AbstractAsyncContextManager[T]) -> T:
    return await opening.__aenter__()


async def _left(opening: AbstractAsyncContextManager[Any]) -> None:
    await opening.__aexit__(None, None, None)


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()
