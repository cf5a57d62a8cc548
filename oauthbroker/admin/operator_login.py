"""Sign an operator in by the broker's own login: the way to the provider, and who came back from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from oauthbroker.authorization.login_claims import LoginClaims, seconds_since_login
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin, Operators
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.protocol.authorization_request import attempt_of
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.protocol.callback_checks import LOCATOR_LENGTH, check_response, parse_callback
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.id_token import VerifiedClaims
from oauthbroker.protocol.identity import fact_at, render
from oauthbroker.records import Attempt

CALLBACK_PATH: Final = "/admin/callback"
_WORKING_DAY: Final = "43200"  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """An operator who signed in. `proved_at` is None where the provider does not say when; `digest` is that of the
    login and its operators."""

    subject: str
    digest: str
    proved_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLogin:
    """The broker's login for `/admin`, by the configuration in use."""

    config: CurrentConfig
    discovery: Discovery
    authorization_urls: AuthorizationUrls
    claims: LoginClaims

    @property
    def operators(self) -> Operators | None:
        """The operators of the login; None where operators come with an API key."""
        login = self.config.bundle.login
        return login.operators if login is not None else None

    @property
    def digest(self) -> str:
        """Changes with the login and its operators: browser sessions of before end. Raises `stateUnknown` without
        one."""
        return self._known()[0].operators_digest()

    async def host(self) -> str:
        """Return the address of the provider's sign-in page. Raises what discovery raises."""
        return (await self.discovery.endpoints(self._known()[0].app)).authorization_url

    async def url(self, attempt: Attempt, *, again: bool, other: bool = False) -> Secret:
        """Return the provider's address for one attempt. `again`: the person has to prove anew who they are (OpenID
        Connect Core 1.0 section 3.1.2.1). `other`: the last sign-in was refused, so the provider has to ask and not
        take the same account by itself. Raises as `AuthorizationUrls.now` does."""
        login, operators = self._known()
        app = _client(login).asking(again=again or other)
        params = {"max_age": _WORKING_DAY, **app.habits.authorize_params}  # with it the ID token says when (auth_time)
        if again:
            params |= {"prompt": "login", "max_age": "0"}
        if operators.acr:
            params["acr_values"] = " ".join(operators.acr)
        return await self.authorization_urls.now(
            replace(app, habits=replace(app.habits, authorize_params=params)), attempt, ()
        )

    async def receive(self, attempt: Attempt, query: bytes, *, again: bool) -> SignedIn:
        """Return the operator who came back with a valid response to this attempt.

        Raises `callbackMalformed`, `stateUnknown`, `issuerMismatch`, `providerDenied`, what `LoginClaims.redeem`
        raises, and `notAllowed` for a person who is no operator (note "operator"), or who signed in by other means than
        the operators' `acr` and `amr` (note "acr" or "amr").
        """
        login, operators = self._known()
        params = parse_callback(query)
        if not attempt.state.matches(params.state.reveal()):
            raise BrokerError(Code.STATE_UNKNOWN)
        promised = params.code is not None and await self.discovery.issuer_promised(login.app)
        valid = check_response(params, login.app.endpoints.issuer, promised=promised)
        oldest = 0 if again else login.max_age_seconds
        claims = await self.claims.redeem(_client(login).app, attempt, valid.code, max_age_seconds=oldest)
        rule = login.app.owner.user_identity
        subject = render(rule.template, claims) if rule is not None else ""
        _check_operator(operators, subject, claims)
        ago, now = seconds_since_login(claims), self.claims.clock.now()
        proved_at = None if ago is None else now - timedelta(seconds=min(ago, now.timestamp()))
        return SignedIn(subject=subject, digest=login.operators_digest(), proved_at=proved_at)

    def _known(self) -> tuple[BrokerLogin, Operators]:
        login = self.config.bundle.login
        if login is None or login.operators is None:
            raise BrokerError(Code.STATE_UNKNOWN, note="no login for operators")
        return login, login.operators


def attempt_from(derived: Callable[[str], str]) -> Attempt:
    """Return the values of one browser's attempt. `derived` makes a secret of 256 bits for each label, base64url, which
    only the broker and not that browser can make."""
    state = derived("locator")[:LOCATOR_LENGTH] + derived("state")
    return attempt_of(derived("verifier"), state, derived("nonce"))


def _client(login: BrokerLogin) -> BrokerLogin:
    """Return the login with the operators' own callback: a code for one kind of pages is worth nothing at the other."""
    app: App = login.app
    return replace(login, app=replace(app, redirect=replace(app.redirect, callback_path=CALLBACK_PATH)))


def _check_operator(operators: Operators, subject: str, claims: VerifiedClaims) -> None:
    named = subject in operators.subjects or any(value in _texts(claims, name) for name, value in operators.claims)
    if not subject or not named:
        raise BrokerError(Code.NOT_ALLOWED, note="operator")
    if operators.acr and claims.get("acr") not in operators.acr:
        raise BrokerError(Code.NOT_ALLOWED, note="acr")
    if not set(operators.amr).issubset(_texts(claims, "amr")):
        raise BrokerError(Code.NOT_ALLOWED, note="amr")


def _texts(claims: VerifiedClaims, name: str) -> Sequence[str]:
    found = fact_at(claims, name)
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)]
