"""The provider's records: consents, one-time codes, tokens and their families. No HTTP."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.history import Ending, Family
from oauthbroker.testing.provider.types import Account, Client

_CODE_LIFETIME = timedelta(seconds=60)


class RefusedError(Exception):
    """A refusal: an OAuth error word and an HTTP status."""

    def __init__(self, error: str, why: str, status: int = 400) -> None:
        super().__init__(error)
        self.error, self.why, self.status = error, why, status


@dataclass(slots=True, eq=False, kw_only=True)
class Agreement:
    """One consent of a user. All tokens issued for it belong to its family."""

    client_id: str
    account: Account
    scopes: tuple[str, ...]
    at: datetime
    nonce: str = ""
    user_token: bool = False  # slack: requested by `user_scope`, returned inside `authed_user`
    beside: Agreement | None = None  # slack: of a user's token beside the bot's, with a family of its own
    resources: tuple[str, ...] = ()
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        self.family = Family(client_id=self.client_id, login=self.account.login, scopes=self.scopes)

    def end(self, by: Ending) -> None:
        """End all its tokens; the first reason stays."""
        self.family.ended_by = self.family.ended_by or by


@dataclass(slots=True, kw_only=True)
class Code:
    """A one-time authorization code and its bindings."""

    agreement: Agreement
    redirect_uri: str
    challenge: str
    until: datetime
    used: bool = False


@dataclass(slots=True, kw_only=True)
class Token:
    """An access or refresh token. `generation` counts refresh tokens of a family from 1."""

    text: str = field(repr=False)
    kind: Literal["access", "refresh"]
    agreement: Agreement
    scopes: tuple[str, ...]
    until: datetime | None
    generation: int = 0
    resources: tuple[str, ...] = ()
    revoked: bool = False
    spent_at: datetime | None = None

    def is_alive(self, now: datetime) -> bool:
        """Tell whether it is usable now (a spent refresh token is not)."""
        over = self.until is not None and self.until <= now
        return not (self.revoked or self.agreement.family.ended_by or over or self.spent_at)


@dataclass(frozen=True, slots=True)
class Issued:
    access: Token
    refresh: Token | None
    beside: Issued | None = None


class TokenTable:
    """Enforces RFC 6749, 7636, 8707 and 9700 strictly."""

    def __init__(self, clock: Clock, canaries: Canaries) -> None:
        self._clock = clock
        self._canaries = canaries
        self.codes: dict[str, Code] = {}
        self.tokens: dict[str, Token] = {}
        self.families: list[Family] = []

    def issue_code(self, agreement: Agreement, redirect_uri: str, challenge: str) -> str:
        """Issue a code for a consent, valid once, for a minute."""
        text = self._canaries.mint("authorization code").reveal()
        self.codes[text] = Code(
            agreement=agreement,
            redirect_uri=redirect_uri,
            challenge=challenge,
            until=self._clock.now() + _CODE_LIFETIME,
        )
        return text

    def redeem_code(
        self, client: Client, text: str, redirect_uri: str, verifier: str, resources: tuple[str, ...] = ()
    ) -> Issued:
        """Issue tokens for a code. A second use revokes the tokens of the first one. Raises RefusedError."""
        code = self.codes.get(text)
        if code is None or code.agreement.client_id != client.client_id:
            raise RefusedError("invalid_grant", "unknown code")
        if code.used:
            code.agreement.end("codeReuse")
            raise RefusedError("invalid_grant", "the code was used before; its tokens are revoked now")
        if code.redirect_uri != redirect_uri:
            raise RefusedError("invalid_grant", "redirect_uri is not the one of the authorization request")
        if code.challenge and code.challenge != s256(verifier):
            raise RefusedError("invalid_grant", "code_verifier does not fit code_challenge")
        if verifier and not code.challenge:
            raise RefusedError("invalid_grant", "code_verifier without code_challenge")  # RFC 9700 2.1.1, downgrade
        code.used = True
        if code.until < self._clock.now():
            raise RefusedError("invalid_grant", "the code has expired")
        issued = self.issue(client, code.agreement, code.agreement.scopes, resources=resources)
        beside = code.agreement.beside
        return issued if beside is None else replace(issued, beside=self.issue(client, beside, beside.scopes))

    def redeem_refresh(
        self, client: Client, text: str, scopes: tuple[str, ...], resources: tuple[str, ...] = ()
    ) -> Issued:
        """Issue tokens for a refresh token; with rotation the old one is spent. Raises RefusedError."""
        token = self.tokens.get(text)
        if token is None or token.kind != "refresh" or token.agreement.client_id != client.client_id:
            raise RefusedError("invalid_grant", "unknown refresh token")
        if token.revoked or token.agreement.family.ended_by:
            raise RefusedError("invalid_grant", "revoked")
        now = self._clock.now()
        if token.until is not None and token.until <= now:
            raise RefusedError("invalid_grant", "the refresh token has expired")
        if token.spent_at is not None and now - token.spent_at >= timedelta(seconds=client.reuse_grace):
            token.agreement.family.reused += 1
            token.agreement.end("reuse")
            raise RefusedError("invalid_grant", "the refresh token was used before; its family is revoked now")
        if not set(scopes) <= set(token.scopes):
            raise RefusedError("invalid_scope", "wider than the grant")
        found = self.issue(
            client, token.agreement, scopes or token.scopes, replaces=token if client.rotate_refresh else None,
            refresh=client.rotate_refresh, resources=resources,
        )  # fmt: skip
        token.agreement.family.redeemed[token.generation] += 1
        if client.rotate_refresh:
            token.spent_at = token.spent_at or now
            return found
        return Issued(found.access, token if client.repeat_refresh else None)

    def issue(
        self,
        client: Client,
        agreement: Agreement,
        scopes: tuple[str, ...],
        *,
        refresh: bool = True,
        replaces: Token | None = None,
        resources: tuple[str, ...] = (),
    ) -> Issued:
        """Issue an access token and, where the client gets one, a refresh token for all scopes of the consent."""
        if not set(resources) <= set(agreement.resources):
            raise RefusedError("invalid_target", "not the resource that was agreed to")  # RFC 8707 2.2
        access = self._token("access", agreement, scopes, client.lifetime)
        access.resources = resources or agreement.resources
        if not refresh or not client.gets_refresh_tokens:
            return Issued(access, None)
        token = self._token("refresh", agreement, agreement.scopes, client.refresh_lifetime)
        token.generation = 1 if replaces is None else replaces.generation + 1
        if token.generation == 1:
            self.families.append(agreement.family)
        agreement.family.generation = max(agreement.family.generation, token.generation)
        return Issued(access, token)

    def _token(
        self, kind: Literal["access", "refresh"], agreement: Agreement, scopes: tuple[str, ...], seconds: float | None
    ) -> Token:
        text = self._canaries.mint(f"{kind} token").reveal()
        until = None if seconds is None else self._clock.now() + timedelta(seconds=seconds)
        self.tokens[text] = Token(text=text, kind=kind, agreement=agreement, scopes=scopes, until=until)
        return self.tokens[text]

    def living(self, text: str) -> Token | None:
        """Return the access token if it is usable now."""
        token = self.tokens.get(text)
        return token if token is not None and token.kind == "access" and token.is_alive(self._clock.now()) else None

    def alive(self) -> int:
        """Count the usable tokens of any kind."""
        now = self._clock.now()
        return sum(token.is_alive(now) for token in list(self.tokens.values()))  # asked from other threads too

    def revoke(self, client: Client, text: str) -> Token | None:
        """Revoke a token (RFC 7009), as far as the client's `revoke_reach` goes. None if it is unknown or foreign."""
        token = self.tokens.get(text)
        if token is None or token.agreement.client_id != client.client_id:
            return None
        token.revoked = True
        if client.revoke_reach == "grant":
            self.revoke_all(client.client_id, token.agreement.account)
        elif client.revoke_reach == "family" or (client.revoke_reach == "token" and token.kind == "refresh"):
            token.agreement.end("revocation")
        return token

    def revoke_all(self, client_id: str, account: Account | None = None, by: Ending = "revocation") -> None:
        """Revoke all tokens of a client, of one user or of all."""
        for agreement in self._agreements(client_id):
            if account in {None, agreement.account}:
                agreement.end(by)

    def expire_access(self, client_id: str) -> None:
        """Expire every access token of a client now; refresh tokens stay."""
        for token in list(self.tokens.values()):  # asked from other threads too
            if token.kind == "access" and token.agreement.client_id == client_id:
                token.until = self._clock.now()

    def _agreements(self, client_id: str) -> Iterable[Agreement]:
        found = (token.agreement for token in list(self.tokens.values()))  # asked from other threads too
        return [agreement for agreement in found if agreement.client_id == client_id]


def s256(verifier: str) -> str:
    """Return the challenge of a verifier (RFC 7636 section 4.2)."""
    return base64url(hashlib.sha256(verifier.encode()).digest())


def base64url(data: bytes) -> str:
    """Encode without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
