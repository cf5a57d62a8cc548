"""What the provider remembers: agreements, one-time codes, tokens and their families. Knows no HTTP."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.clock import Clock
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.nouns import Account, Client

_CODE_LIFETIME = timedelta(seconds=60)


class RefusedError(Exception):
    """A request the provider refuses: an OAuth error word and an HTTP status."""

    def __init__(self, error: str, why: str, status: int = 400) -> None:
        super().__init__(error)
        self.error, self.why, self.status = error, why, status


@dataclass(slots=True)
class Agreement:
    """What one person agreed to once. Every token that came of it belongs to this family."""

    client_id: str
    account: Account
    scopes: tuple[str, ...]
    nonce: str
    at: datetime
    user_token: bool = False  # slack: asked for by `user_scope`, answered inside `authed_user`
    revoked: bool = False


@dataclass(slots=True)
class Code:
    """A one-time authorization code and what it is bound to."""

    agreement: Agreement
    redirect_uri: str
    challenge: str
    until: datetime
    used: bool = False


@dataclass(slots=True)
class Token:
    """An access or refresh token."""

    text: str = field(repr=False)
    kind: Literal["access", "refresh"]
    agreement: Agreement
    scopes: tuple[str, ...]
    until: datetime | None
    revoked: bool = False
    spent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """The tokens of one answer."""

    access: Token
    refresh: Token | None


class Ledger:
    """Strict about everything RFC 6749, 7636 and 9700 ask of a provider."""

    def __init__(self, clock: Clock, canaries: Canaries) -> None:
        self._clock = clock
        self._canaries = canaries
        self.codes: dict[str, Code] = {}
        self.tokens: dict[str, Token] = {}

    def issue_code(self, agreement: Agreement, redirect_uri: str, challenge: str) -> str:
        """A code for an agreement, good once, for a minute."""
        text = self._canaries.mint("authorization code").reveal()
        self.codes[text] = Code(agreement, redirect_uri, challenge, self._clock.now() + _CODE_LIFETIME)
        return text

    def redeem_code(self, client: Client, text: str, redirect_uri: str, verifier: str) -> Issued:
        """Tokens for a code. A second use revokes what the first one got. Raises RefusedError."""
        code = self.codes.get(text)
        if code is None or code.agreement.client_id != client.client_id:
            raise RefusedError("invalid_grant", "unknown code")
        if code.used:
            code.agreement.revoked = True
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
        return self.issue(client, code.agreement, code.agreement.scopes)

    def redeem_refresh(self, client: Client, text: str, scopes: tuple[str, ...]) -> Issued:
        """New tokens for a refresh token; with rotation the old one is spent. Raises RefusedError."""
        token = self.tokens.get(text)
        if token is None or token.kind != "refresh" or token.agreement.client_id != client.client_id:
            raise RefusedError("invalid_grant", "unknown refresh token")
        if token.revoked or token.agreement.revoked:
            raise RefusedError("invalid_grant", "revoked")
        now = self._clock.now()
        if token.spent_at is not None and now - token.spent_at >= timedelta(seconds=client.reuse_grace):
            token.agreement.revoked = True
            raise RefusedError("invalid_grant", "the refresh token was used before; its family is revoked now")
        if not set(scopes) <= set(token.scopes):
            raise RefusedError("invalid_scope", "wider than what was granted")
        if not client.rotate_refresh:
            return self.issue(client, token.agreement, scopes or token.scopes, refresh=False)
        token.spent_at = token.spent_at or now
        return self.issue(client, token.agreement, scopes or token.scopes)

    def issue(self, client: Client, agreement: Agreement, scopes: tuple[str, ...], *, refresh: bool = True) -> Issued:
        """An access token and, where the client gets one, a refresh token for all that was agreed to."""
        lifetime = client.lifetime
        until = None if lifetime is None else self._clock.now() + timedelta(seconds=lifetime)
        access = self._token("access", agreement, scopes, until)
        wants_refresh = refresh and client.gets_refresh_tokens
        return Issued(access, self._token("refresh", agreement, agreement.scopes, None) if wants_refresh else None)

    def _token(
        self, kind: Literal["access", "refresh"], agreement: Agreement, scopes: tuple[str, ...], until: datetime | None
    ) -> Token:
        text = self._canaries.mint(f"{kind} token").reveal()
        self.tokens[text] = Token(text, kind, agreement, scopes, until)
        return self.tokens[text]

    def living(self, text: str) -> Token | None:
        """The access token, if it can be used now."""
        token = self.tokens.get(text)
        if token is None or token.kind != "access" or token.revoked or token.agreement.revoked:
            return None
        return None if token.until is not None and token.until <= self._clock.now() else token

    def revoke(self, client: Client, text: str) -> bool:
        """RFC 7009: kill a token, as far as the client's `revoke_reach` goes. False if it is unknown or foreign."""
        token = self.tokens.get(text)
        if token is None or token.agreement.client_id != client.client_id:
            return False
        token.revoked = True
        if client.revoke_reach == "grant":
            self.revoke_all(client.client_id, token.agreement.account)
        elif token.kind == "refresh":
            token.agreement.revoked = True
        return True

    def revoke_all(self, client_id: str, account: Account | None = None) -> None:
        """Kill everything a client got, of one person or of everybody."""
        for token in list(self.tokens.values()):  # asked from other threads too
            agreement = token.agreement
            if agreement.client_id == client_id and account in {None, agreement.account}:
                agreement.revoked = True

    def expire_access(self, client_id: str) -> None:
        """Let every access token of a client be over now; refresh tokens stay."""
        for token in list(self.tokens.values()):  # asked from other threads too
            if token.kind == "access" and token.agreement.client_id == client_id:
                token.until = self._clock.now()


def s256(verifier: str) -> str:
    """RFC 7636 4.2: the challenge of a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
