"""Send the person to the provider, wait, and say how it ended."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from oauthbroker.authorization.credential_entry import FieldsRefused
from oauthbroker.cli.login.questions import Given, is_asking, key_values, note
from oauthbroker.cli.output.error_output import confirm, see
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.model.apps import App
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.personal.app_files import AppChange
from oauthbroker.personal.command_lines import command_for, named
from oauthbroker.personal.local_broker import app_of, open_local
from oauthbroker.personal.logins import Consent, LocalLogin, connections, known_as
from oauthbroker.personal.places import Places
from oauthbroker.personal.serve_socket import serve_process
from oauthbroker.records.grant_view import GrantView

TRIES: Final = 3  # of a key that is typed
_AGAIN: Final = frozenset({Code.REQUEST_INVALID, Code.CREDENTIAL_REFUSED})
_OF_PROVIDER: Final = frozenset(
    {
        Code.APP_MISCONFIGURED,
        Code.EXCHANGE_FAILED,
        Code.OUTGOING_PROXY_REFUSED,
        Code.PROVIDER_DENIED,
        Code.PROVIDER_RATE_LIMITED,
        Code.PROVIDER_UNREACHABLE,
        Code.TOKEN_RESPONSE_INVALID,
    }
)


class LoginWish(NamedTuple):
    """What to connect: an app, one of its accounts, whether a browser is opened, and whether nothing is asked."""

    name: str
    account: str
    browser: bool
    yes: bool


class Ended(NamedTuple):
    """How it ended: the connection, and the sentence that says so."""

    view: GrantView
    text: str


def is_remote() -> bool:
    """Return whether a browser that is opened here is none that the person sees."""
    if "SSH_CONNECTION" in os.environ:
        return True
    has_display = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & os.environ.keys()
    return sys.platform.startswith("linux") and not has_display


async def log_in(places: Places, wanted: LoginWish, given: Given, change: AppChange | None) -> Ended:
    """Connect an app of these places, with a change of it that is kept if this goes well. Raises Refused and
    BrokerError; nothing is connected and changed then."""
    async with open_local(places, only={wanted.name}, background=True, change=change) as running:
        _check_own(app_of(running, places, wanted.name), wanted.account, places)
        login = LocalLogin.of(running, wanted.name, wanted.account)
        there = await login.there()
        consent = await _asked(login, there, replace=wanted.yes)
        if consent is None and there is not None:  # it works already
            who = f"{login.named} is connected{_as(there)}"
            if not is_asking():
                more = "Another account or client in its place: --yes; beside it: --account NAME."
                return Ended(there, f"{who} already. {more}")
            confirm(f"{who}. Connect another account in its place?", yes=False)
            consent = await _asked(login, there, replace=True)
        if consent is not None and login.app.credential is not None:
            await _type(login, consent, given)
        elif consent is not None:
            _check(login, await _agree(login, consent, wanted, places), there)
        if change is not None:
            await change.keep(places, running.broker.secrets)
        view = await login.there()
        if view is None:
            raise Refused(f"It has ended meanwhile. Run: {command_for('login', wanted.name, wanted.account)}")
        return Ended(view, _sentence(login, view) + await _twice(login, view))


def _check_own(app: App, account: str, places: Places) -> None:
    """Refuse an app whose consent would be given in vain. One that a person wrote may be for the users of a server."""
    file, again = places.app_file(app.name), f"Then run again: {command_for('login', app.name, account)}"
    if app.subject_mode != "user":
        raise Refused(f"{app.name} is for a whole team. In spec of {file} write `subjectMode: user`. {again}")
    if app.flow != "clientCredentials" and app.owner.binding != "localOperator":
        raise Refused(
            f"{app.name} is for the users of a server. For an account of your own write `binding: localOperator` in "
            f"spec.owner of {file}. {again}"
        )
    if account and not app.has_accounts:
        raise Refused(f"{app.name} has one account here. For more write `accounts: several` in spec of {file}. {again}")


async def _twice(login: LocalLogin, view: GrantView) -> str:
    """Return a sentence if the account that was connected is connected under another name, too."""
    found = [each.view async for each in connections(login.running, login.app.name)]
    same = sorted(
        named(login.app.name, each.account)
        for each in found
        if view.identity and each.identity == view.identity and each.account != view.account and not each.revoked
    )
    if not same:
        return ""
    end = command_for("logout", login.app.name, login.account) if login.account else ""
    more = f" For another one, run {end}, and sign in at {login.app.display_name} as that one." if end else ""
    return f" It is the same account as {', '.join(same)}.{more}"


async def _asked(login: LocalLogin, there: GrantView | None, *, replace: bool) -> Consent | None:
    """Open a request. A refusal of the provider names it and the command to run again. Raises Refused and
    BrokerError."""
    try:
        return await login.ask(replace=replace)
    except BrokerError as error:
        if error.code not in _OF_PROVIDER:
            raise
        refused = SessionOutcome("failed", error.code)
    _check(login, refused, there)
    return None


async def _agree(login: LocalLogin, consent: Consent, wanted: LoginWish, places: Places) -> SessionOutcome:
    """Show where to agree, and wait."""
    async with AsyncExitStack() as stack:
        link = consent.link
        if consent.device is not None:
            link = consent.device.verification_uri_complete or consent.device.verification_uri
            note(f"Open {consent.device.verification_uri} and type {consent.device.user_code}")
        else:
            await _serve(stack, login, places)
        if wanted.browser and await asyncio.to_thread(_opens, link):
            note(f"Opening your browser ... or open {link}")
        elif consent.device is None:
            note(f"Open {link}")
            port = login.running.parts.settings.listen_port
            if is_remote():
                note(f"On another machine, first run there: ssh -L {port}:127.0.0.1:{port} {_host()}")
        return await login.wait(consent)


async def _serve(stack: AsyncExitStack, login: LocalLogin, places: Places) -> None:
    """Serve the pages of the request. Raises Refused where the port is not to be had."""
    try:
        await stack.enter_async_context(login.running.broker.serving())
    except BrokerError as error:
        refused = error
    else:
        return
    port, path = login.running.parts.settings.listen_port, login.app.redirect.callback_path
    advice = f"run again with --port {port + 1}, and register its callback: http://127.0.0.1:{port + 1}{path}"
    whose = serve_process(places)
    stop = f" This one runs: {whose}. Stop it, log in, and start it again." if whose else ""
    raise Refused(refused.message().replace("change spec.listen", advice) + stop)


def _opens(link: str) -> bool:
    try:
        return webbrowser.open(link)
    except (webbrowser.Error, OSError):
        return False


def _host() -> str:
    """Return the address by which the person came here, for the command that forwards the port."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return parts[2] if len(parts) == 4 else "HOST"


async def _type(login: LocalLogin, consent: Consent, given: Given) -> None:
    """Ask for a key until the provider takes it. Raises Refused and BrokerError."""
    assert login.app.credential is not None  # noqa: S101  (the caller has looked)
    try:
        for left in reversed(range(TRIES)):
            values = key_values(login.app.credential.fields, given)
            try:
                return await login.enter(consent, values)
            except BrokerError as error:
                refused = error.with_traceback(None)  # its frames hold the key
            if refused.code not in _AGAIN or not left or given.secrets is not None or not is_asking():
                problem = _problem(login, refused)
                raise Refused(problem if "nothing was stored" in problem.lower() else f"{problem} Nothing was stored.")
            note(_problem(login, refused))
    finally:
        await login.running.broker.cancel(consent.session)


def _problem(login: LocalLogin, refused: BrokerError) -> str:
    if not isinstance(refused, FieldsRefused) or login.app.credential is None:
        return refused.message()
    titles = {each.name: each.title for each in login.app.credential.fields}
    return " ".join(f"{titles.get(name, name)}: {_FIELD[problem]}." for name, problem in refused.problems.items())


_FIELD: Final = {
    "missing": "it is empty",
    "characters": "it has characters that no key has; copy it anew",
    "long": "it is too long",
    "pattern": "it does not look like one; copy it anew",
    "colon": "it has a colon",
    "unknown": "there is no such field",
}


def _check(login: LocalLogin, outcome: SessionOutcome, there: GrantView | None) -> None:
    """Raise Refused for a request that came to nothing."""
    if outcome.status == "completed":
        return
    title, again = login.app.display_name, f"Run again: {command_for('login', login.app.name, login.account)}"
    if outcome.code is Code.PROVIDER_DENIED:
        raise Refused(f"You said no at {title}. Nothing was connected.")
    if outcome.code is Code.SUBJECT_MISMATCH and there is not None:
        who = known_as(there)
        raise Refused(
            f"Another account came back than {who}, which is connected. Nothing was changed. Sign in at {title} as "
            f"{who}, or run again with --yes to replace it, or with --account NAME to have both."
        )
    if outcome.code is Code.APP_MISCONFIGURED and (anew := _anew(login)):
        raise Refused(
            f"{title} does not accept the client that it has registered. {again}\n  If it stays so, run {anew}"
        )
    if outcome.code is Code.APP_MISCONFIGURED:
        flow = " If it has no device flow: --no-device." if login.app.flow == "deviceCode" else ""
        raise Refused(
            f"{title} does not accept this app. Look there at its client id, secret, scopes and callback, and correct "
            f"what differs. {again} with --client-id ID, --scopes, or --stdin for another secret.{flow}"
        )
    if outcome.code is Code.PROVIDER_UNREACHABLE:
        raise Refused(f"{title} does not answer. Look at the network of this machine. {again}\n  {see(outcome.code)}")
    if outcome.code is not None:
        said = BrokerError(outcome.code).message()
        raise Refused(f"{title}: {outcome.code.value}: {said} {again}\n  {see(outcome.code)}")
    unknown = f"\n  If its page says that it does not know this app, run {anew}" if (anew := _anew(login)) else ""
    raise Refused(f"The link has ended, because no consent came from {title} in time. {again}{unknown}")


def _anew(login: LocalLogin) -> str:
    """Return the commands that register another client at an MCP server; empty for an app with a client of its own."""
    name, mcp = login.app.name, login.app.mcp
    if mcp is None or mcp.has_client:
        return ""
    return f"oauthbroker logout {name} --forget, then oauthbroker login {mcp.url}"


def _sentence(login: LocalLogin, view: GrantView) -> str:
    if login.app.credential is not None:
        checked = "accepted it" if not view.unverified else "was not asked: its preset knows no check"
        return f"Connected{_as(view)}. The key is sealed here; {login.app.display_name} {checked}."
    scopes = f", scope {' '.join(view.scopes)}" if view.scopes else ""
    if view.refreshable:
        life = "The broker refreshes it."
    elif view.expires_at is None:
        life = "It has no end of its own."
    else:
        life = f"It ends at {view.expires_at:%Y-%m-%d %H:%M} UTC, and nothing refreshes it."
    unnamed = "" if known_as(view) else f" {login.app.display_name} does not say whose account it is."
    return f"Connected{_as(view)}{scopes}.{unnamed} {life}"


def _as(view: GrantView) -> str:
    """Return ` as` and the name of the account with its id; empty where the provider names none."""
    name = known_as(view)
    return name and f" as {name}" + (f" ({view.identity})" if view.identity not in {None, "", name} else "")
