"""The provider's accounts, registered clients and recorded requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.secret import Secret

AuthMethod = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
Dialect = Literal["oidc", "slack", "github", "meta"]

SECRET_FIELDS = frozenset(
    {
        *("code", "code_verifier", "client_secret", "refresh_token", "token", "access_token", "fb_exchange_token"),
        *("client_assertion", "device_code", "state", "nonce"),
    }
)
"""Form and query fields that are recorded as `Secret`."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user at the provider. `sub` identifies the user in ID tokens and answers, `number` where ids are integers.

    `claims` are added to ID tokens and userinfo as they are (`hd`, `tid`, `email_verified`, ...).
    """

    login: str
    sub: str
    team: str = "T111"
    _: KW_ONLY
    number: int = 0
    name: str = ""
    email: str = ""
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @property
    def display(self) -> str:
        """Return the name on the pages."""
        return self.name or self.login


ALICE = Account("alice", "U234567", "T111", number=1001, name="Alice Arden", email="alice@people.example")
BOB = Account("bob", "U345678", "T111", number=1002, name="Bob Birch", email="bob@people.example")
MALLORY = Account("mallory", "U666666", "T666", number=6666, name="Mallory Moss", email="mallory@people.example")


@dataclass(frozen=True, slots=True)
class Client:
    """A registered client. The defaults make a confidential web client with rotating refresh tokens.

    `client_secret` is minted at registration by default. `more_secrets` are valid beside it, as in a rotation.
    Empty `scopes` allow every scope. Lifetimes are seconds. `access_lifetime=None` issues tokens that never expire,
    without `expires_in`; "usual" is an hour for `oidc` and `meta`, and None for `slack` and `github`, which then
    issue no refresh token either; `meta` issues none at all, and exchanges access tokens for lasting ones.
    `refresh_lifetime` None is unlimited. `reuse_grace` is how many seconds a spent refresh token is still accepted;
    after that its reuse revokes the whole family. Without `rotate_refresh` no refresh token is returned, or with
    `repeat_refresh` the same one. `revoke_reach` is the effect of one revocation: `only` that token; `token`: that
    token, and all of its family if it is a refresh token (RFC 7009 section 2.1); `family`: always all of its
    family; `grant`: every grant of the same user to this client. `public_keys` (JWKs) verify `private_key_jwt`
    assertions, and `assertion_audience` is the only audience allowed in one. `pkce`: a `refused` code_challenge ends
    the authorization, a refused code_verifier is `invalid_client`. `device_interval` and `device_lifetime` are seconds
    (RFC 8628 section 3.2).
    """

    client_id: str
    client_secret: Secret | None = None
    _: KW_ONLY
    redirect_uris: tuple[str, ...] = ()
    auth_method: AuthMethod = "client_secret_basic"
    dialect: Dialect = "oidc"
    name: str = ""
    scopes: frozenset[str] = frozenset()
    access_lifetime: int | Literal["usual"] | None = "usual"
    issue_refresh: bool = True
    rotate_refresh: bool = True
    reuse_grace: float = 0
    revoke_reach: Literal["only", "token", "family", "grant"] = "token"
    id_token_alg: Literal["RS256", "ES256"] = "RS256"
    public_keys: tuple[dict[str, str], ...] = field(default=(), repr=False)
    assertion_audience: Literal["issuer", "tokenEndpoint", "endpoint"] = "issuer"
    more_secrets: tuple[Secret, ...] = ()
    refresh_lifetime: float | None = None
    repeat_refresh: bool = False
    pkce: Literal["required", "refused"] = "required"
    device_interval: int = 5
    device_lifetime: int = 600

    @property
    def display(self) -> str:
        """Return the name on the consent page."""
        return self.name or self.client_id

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Return all secrets that are valid now."""
        return tuple(secret for secret in (self.client_secret, *self.more_secrets) if secret is not None)

    def reveal_secret(self) -> str:
        """Return the client secret as text, for an environment variable or a form. Raises LookupError."""
        if self.client_secret is None:
            raise LookupError(f"{self.client_id} has no secret: it is not registered yet, or authenticates without")
        return self.client_secret.reveal()

    @property
    def lifetime(self) -> int | None:
        """Return the lifetime of an access token in seconds; None for unlimited."""
        if self.access_lifetime == "usual":
            return 3600 if self.dialect in {"oidc", "meta"} else None
        return self.access_lifetime

    @property
    def gets_refresh_tokens(self) -> bool:
        """Tell whether its answers have a refresh token, by dialect and lifetime."""
        return self.issue_refresh and self.dialect != "meta" and (self.dialect == "oidc" or self.lifetime is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request as the provider received it. Secret fields are `Secret`s; credentials in headers are removed.

    `fields` are those of the query, of a form and of a JSON body. `client_id` is the claimed client, proven or not.
    `generation` is that of its refresh token (1 came with the code; 0: none, or an unknown one).
    """

    endpoint: str
    method: str
    path: str
    fields: tuple[tuple[str, str | Secret], ...]
    headers: dict[str, str]
    at: datetime
    client_id: str = ""
    generation: int = 0

    @property
    def form(self) -> dict[str, str | Secret]:
        """Return fields by name; of a repeated one the first. `fields` has them all."""
        return dict(reversed(self.fields))

    @property
    def grant_type(self) -> str:
        """Return the grant type of a token request (`authorization_code`, `refresh_token`, ...), else empty."""
        value = self.form.get("grant_type", "")
        return value if isinstance(value, str) else ""

    @property
    def resources(self) -> tuple[str, ...]:
        """Return every `resource` of the request, in order (RFC 8707)."""
        return tuple(str(value) for name, value in self.fields if name == "resource")

    @property
    def has_code_verifier(self) -> bool:
        """Tell whether the form has a PKCE verifier."""
        return "code_verifier" in self.form
