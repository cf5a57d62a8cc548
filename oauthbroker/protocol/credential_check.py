"""Ask a provider's API whether a static credential is good, before it is stored."""

from __future__ import annotations

from http import HTTPStatus

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import decode_json
from oauthbroker.core.version import VERSION
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.model.provider_api import AccountHost, ApiHost, written_host
from oauthbroker.model.static_credential import TOKEN_TYPE
from oauthbroker.protocol.account_names import name_of
from oauthbroker.protocol.credential_placement import placed
from oauthbroker.protocol.identity import render
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiTransport
from oauthbroker.protocol.token_endpoint import TokenResponse

_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_LIMITS = ApiLimits(stall_seconds=10.0, seconds=20.0, answer_bytes=1024 * 1024)


@dataclass(frozen=True, slots=True)
class CredentialChecks:
    """Sends the app's `verify` request with the credential, to its host or the first of `api.hosts`."""

    transport: ApiTransport
    limits: ApiLimits = field(default=_LIMITS)

    async def owner_of(self, app: App, packed: Secret) -> OwnerFacts:
        """Return whose credential it is, as far as the answer names an account. `app` is at its connection. Without a
        `verify` request nothing is known.

        Raises `credentialRefused` for 401, 403 and what the app names, `credentialUnchecked` for any other answer but
        2xx and where none came, `subjectUnverifiable` for an answer without the account that the app reads there.
        """
        assert app.credential is not None  # noqa: S101  (the caller's app is a CredentialApp)
        if app.credential.verification is None:
            return OwnerFacts()
        status, body = await self._answer(app, packed)
        if status in _REFUSED or status in app.credential.verification.refused:
            raise BrokerError(Code.CREDENTIAL_REFUSED, note=f"status {status}")
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise BrokerError(Code.CREDENTIAL_UNCHECKED, note=f"status {status}")
        person, team = app.owner.user_identity, app.owner.global_identity
        if person is None and team is None:
            return OwnerFacts()
        said = decode_json(body, Code.SUBJECT_UNVERIFIABLE)
        return OwnerFacts(
            global_identity=render(team.template, said) if team is not None else None,
            user_identity=render(person.template, said) if person is not None else None,
            name=name_of(app, {rule.source: said for rule in (team, person) if rule is not None}),
        )

    async def _answer(self, app: App, packed: Secret) -> tuple[int, bytes]:
        credential = app.credential
        assert credential is not None and credential.verification is not None  # noqa: S101, PT018
        asked = credential.verification
        headers = {"Accept": "application/json", "User-Agent": f"oauthbroker/{VERSION}", **asked.headers}
        if asked.body:
            headers = {"Content-Type": "application/json", **headers}
        host = written_host(asked.host) or first_host(app)
        if asked.service:
            credential = replace(credential, placement=credential.placement.signing(asked.service))
        request = ApiRequest(
            method=asked.method,
            scheme=host.scheme,
            host=host.name,
            port=host.port,
            path=asked.path,
            headers=[(name.encode("ascii"), text.encode("ascii")) for name, text in headers.items()],
            body=asked.body.encode(),
            app=app.name,
            ca=app.provider_ca,
            direct=app.direct,
        )
        failed: BrokerError
        try:
            response = await self.transport.send(placed(credential.opened(packed), request), self.limits)
            try:
                return response.status, b"".join([piece async for piece in response.chunks()])
            finally:
                await response.aclose()
        except BrokerError as error:
            failed = error
        if failed.code is Code.APP_MISCONFIGURED or not failed.retryable:
            raise failed.with_traceback(None)
        raise BrokerError(Code.CREDENTIAL_UNCHECKED, note=failed.note)


def first_host(app: App) -> ApiHost:
    """Return the first of the app's hosts, at its connection. Raises `appMisconfigured` where no host is certain."""
    first = app.api.hosts[0] if app.api.hosts else None
    if isinstance(first, ApiHost):
        return first
    name = first.host_in(app.params) if first is not None and not isinstance(first, AccountHost) else ""
    if not name:
        raise BrokerError(Code.APP_MISCONFIGURED, note="no host to check a credential at")
    return ApiHost(name)


def credential_response(app: App, packed: Secret) -> TokenResponse:
    """Return a credential in the form in which grants are made of tokens. It ends after the app's `life`."""
    assert app.credential is not None  # noqa: S101  (the caller's app is a CredentialApp)
    days = app.credential.life_days
    return TokenResponse(
        access_token=packed,
        token_type=TOKEN_TYPE,
        refresh_token=None,
        lifetime_seconds=None if days is None else days * 24 * 3600,
        scopes=None,
        id_token=None,
        end_stated=days is not None,
    )
