"""Apps and Broker as the plug-ins use them: complete, checked, with every value resolved. No I/O here.

What people write (YAML, presets, value sources) becomes these in `config`; they can also be built in code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from oauthbroker.core.claims_challenge import merged_claims
from oauthbroker.core.dataclasses import KW_ONLY, astuple, dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.connect_params import ConnectParam, fill_slots, filled, texts_of
from oauthbroker.model.connection_facts import ConnectionFacts
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_api import ApiAccess
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.static_credential import StaticCredential
from oauthbroker.model.turn import SubjectMode

AppKind = Literal["OAuthApp", "CredentialApp"]
Flow = Literal["authorizationCode", "deviceCode", "clientCredentials"]
AuthMethod = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
AssertionType = Literal["JWT", "client-authentication+jwt"]
AssertionAudience = Literal["issuer", "tokenEndpoint", "endpoint"]
Binding = Literal["providerIdentity", "runtimeConfirm", "channelCode", "brokerLogin", "localOperator"]
OwnerConfirmation = Literal["runtimeConfirm", "channelCode", "brokerLogin"]
Link = Literal["connect", "direct"]
Pushing = Literal["auto", "required", "never"]
IdentitySource = Literal["tokenResponse", "idToken", "userInfo"]
ANYONE: Literal["anyone"] = "anyone"
MOST_CONNECTED = 1_000  # connections of an app that are kept filled in
# Who brought the code is confirmed before it is redeemed: while it is pending, or by a login before there is one.
CONFIRMATIONS: Mapping[str, OwnerConfirmation] = {each: each for each in get_args(OwnerConfirmation)}


@dataclass(frozen=True, slots=True)
class Client:
    """Our registration at the provider (RFC 6749 section 2).

    `later_secrets` are tried in their order when the provider does not know us by `client_secret`: while a secret
    is being replaced, both are listed. With `private_key_jwt` they are keys, `assertion_type` is what the header
    of an assertion calls it (`typ`), and `assertion_audience` whom it names (`aud`): the issuer, the token endpoint, or
    the endpoint that is asked.
    """

    client_id: str
    client_secret: Secret | None = None
    auth_method: AuthMethod = "client_secret_basic"
    _: KW_ONLY
    later_secrets: tuple[Secret, ...] = ()
    assertion_type: AssertionType = "JWT"
    assertion_audience: AssertionAudience = "issuer"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Every secret, in the order in which they are tried."""
        return (() if self.client_secret is None else (self.client_secret,)) + self.later_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the provider answers. `issuer` alone is enough for a provider with OIDC discovery."""

    authorization_url: str = ""
    token_url: str = ""
    revoke_url: str = ""
    user_info_url: str = ""
    issuer: str = ""
    jwks_url: str = ""
    device_authorization_url: str = ""
    refresh_url: str = ""
    pushed_authorization_url: str = ""


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where the provider sends the browser back to: every app has a path of its own (case 6). `uri_name` is the name
    under which the provider knows that address, where requests have it in place of the address."""

    callback_path: str
    base_url: str
    link: Link = "connect"
    _: KW_ONLY
    uri_name: str = ""

    @property
    def uri(self) -> str:
        return self.base_url.rstrip("/") + self.callback_path


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """How to read an account out of what the provider says: `slack:user:{team.id}:{authed_user.id}`.

    `requires` are facts beside it that have to be so. `name` is the path of the fact by which people know the account.
    """

    source: IdentitySource
    template: str
    requires: tuple[tuple[str, bool | str], ...] = ()
    _: KW_ONLY
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who may own what comes back. `authorizers` is for global mode: accounts, or `anyone`. `confirm_url` is the
    runtime's page for `runtimeConfirm`."""

    binding: Binding = "providerIdentity"
    global_identity: IdentityRule | None = None
    user_identity: IdentityRule | None = None
    authorizers: tuple[str, ...] | Literal["anyone"] = ()
    confirm_url: str = ""

    def at(self, texts: Mapping[str, str]) -> Owner:
        """Return the owner with the parameters of a connection in its templates."""

        def at(rule: IdentityRule | None) -> IdentityRule | None:
            return None if rule is None else replace(rule, template=filled(rule.template, texts))

        return replace(self, global_identity=at(self.global_identity), user_identity=at(self.user_identity))

    @property
    def confirmation(self) -> OwnerConfirmation | None:
        """Return the binding, if the browser's user must be confirmed before the code is redeemed."""
        return CONFIRMATIONS.get(self.binding)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One app at one provider: an OAuthApp or, with a `credential`, a CredentialApp, which has no client, endpoints or
    scopes. `scopes` is the fixed ceiling: nothing ever asks for, or hands out, more.

    `refresh_ahead_seconds`: tokens in use are refreshed in the background that long before they end; 0 for never.
    `several_accounts`: a subject may connect more than one. `connect_params` stand in its addresses as `{name}`; `base`
    is the app without their values, which are `params`. `provider_ca`: certificates (PEM) that are trusted for its
    provider, beside those of the system. `mcp`: the issuer, and the client where none is configured, are learnt from
    that server (`learnt`). `also`: the app of the second token that a consent brings. `environment`: the variables in
    which programs look for its token. `field_variables`: the variables of the fields of a credential that the person
    whose own connection it is lets programs have.
    """

    name: str
    provider: str
    flow: Flow | Literal["staticCredential"]
    subject_mode: SubjectMode
    client: Client
    endpoints: Endpoints
    scopes: tuple[str, ...]
    redirect: Redirect
    owner: Owner
    title: str = ""
    revocation: Revocation = field(default_factory=Revocation)
    habits: Habits = field(default_factory=Habits)
    api: ApiAccess = field(default_factory=ApiAccess)
    several_accounts: bool = False
    connect_params: tuple[ConnectParam, ...] = ()
    facts: ConnectionFacts = field(default_factory=ConnectionFacts)
    resource: tuple[str, ...] = ()
    pushed_authorization: Pushing = "auto"
    refresh_ahead_seconds: int = 0
    provider_ca: str = ""
    direct: bool = False
    mcp: McpServer | None = None
    credential: StaticCredential | None = None
    also: App | None = None
    environment: tuple[str, ...] = ()
    field_variables: Mapping[str, str] = field(default_factory=dict)
    scope_set: frozenset[str] = frozenset()
    registration: str = ""
    config_digest: str = field(init=False, compare=False, repr=False)
    base: App | None = field(default=None, compare=False, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    _connected: dict[tuple[str, ...], App] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """`registration` names our client at that very provider: a grant made with another one is not this app's.
        `config_digest` changes when anything changes that a running authorization relies on."""
        object.__setattr__(self, "scope_set", frozenset(self.scopes))
        token_url = self.facts.filled(self.endpoints.token_url, {})  # at the default of a host that a fact names
        place = token_url or self.endpoints.issuer or (self.mcp.url if self.mcp is not None else "")
        if self.credential is not None:  # a key is for the API that checked it, and for the hosts that its page named
            place = " ".join([self.provider, *self.api.places(self.params)])
        digest = hashlib.sha256(json.dumps([self.client.client_id, place]).encode()).hexdigest()
        object.__setattr__(self, "registration", digest[:32])
        object.__setattr__(self, "config_digest", self._digest())

    def asking_which_account(self) -> App:
        """Return the app for a person who came with the wrong account: an OpenID provider is asked to let them choose
        (OpenID Connect Core 1.0 section 3.1.2.1). What the app's own `prompt` says stays."""
        said = self.habits.authorize_params.get("prompt", "").split()
        if self.endpoints.issuer is None or {"login", "select_account", "none"} & set(said):
            return self
        params = {**self.habits.authorize_params, "prompt": " ".join([*said, "select_account"])}
        return replace(self, habits=replace(self.habits, authorize_params=params))

    def asking_for(self, claims: str) -> App:
        """Return the app for an authorization with these claims, beside those of its own options."""
        if not claims:
            return self
        params = self.habits.authorize_params
        params = {**params, "claims": merged_claims(params.get("claims", ""), claims)}
        return replace(self, habits=replace(self.habits, authorize_params=params))

    def learnt(self, issuer: str, client: Client) -> App:
        """Return the app of an MCP server with its issuer, and with its client at that issuer."""
        return replace(self, endpoints=replace(self.endpoints, issuer=issuer), client=client)

    @property
    def has_accounts(self) -> bool:
        """Whether a subject may have other accounts than the unnamed one."""
        return self.several_accounts or bool(self.connect_params)

    def at(self, values: Mapping[str, str]) -> App:
        """Return the app at a connection's host: with its `connect_params` filled in wherever they stand. The app
        itself for values that it does not take, or no longer: then no grant and no answer fits it."""
        if not self.connect_params:
            return self
        if self.base is not None:
            return self.base.at(values)
        names = tuple(values.get(param.name, "") for param in self.connect_params)
        found = self._connected.get(names)
        if found is None:
            texts = texts_of(self.connect_params, values)
            if texts is None:
                return self
            if len(self._connected) >= MOST_CONNECTED:
                self._connected.clear()
            found = self._connected[names] = self._filled(texts, dict(values))
        return found

    def _filled(self, texts: Mapping[str, str], values: Mapping[str, str]) -> App:
        endpoints = replace(self.endpoints, **fill_slots(self.endpoints, texts))
        redirect = replace(self.redirect, callback_path=filled(self.redirect.callback_path, texts))
        habits = replace(self.habits, issuer_template=filled(self.habits.issuer_template, texts))
        resource = tuple(filled(each, texts) for each in self.resource)
        return replace(
            self,
            owner=self.owner.at({f"connectParams.{name}": value for name, value in values.items()}),
            endpoints=endpoints,
            redirect=redirect,
            habits=habits,
            resource=resource,
            facts=self.facts.at(texts),
            credential=self.credential.at(texts) if self.credential is not None else None,
            base=self,
            params=values,
        )

    @property
    def is_at_a_connection(self) -> bool:
        """Whether every address is known."""
        return self.base is not None or not self.connect_params

    @property
    def has_callback(self) -> bool:
        """Whether browsers come back to a path of this app's own."""
        return self.flow == "authorizationCode"

    @property
    def carriers(self) -> tuple[str, ...]:
        """The names of the headers that carry its token or credential: a tool's own are dropped."""
        return (self.habits.token_header,) if self.credential is None else self.credential.placement.headers

    @property
    def display_name(self) -> str:
        return self.title or self.provider

    @property
    def ref(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name}

    @property
    def kind(self) -> AppKind:
        return "OAuthApp" if self.credential is None else "CredentialApp"

    def _digest(self) -> str:
        """Return the hash of all that a running authorization relies on, without the values of secrets. It is the same
        for all connections."""
        if self.base is not None:
            return self.base.config_digest
        asked = self.credential and replace(self.credential, values=None, outside={})
        facts: list[Any] = [
            self.provider, self.flow, self.subject_mode, self.client.client_id, self.client.auth_method,
            [getattr(self.endpoints, slot) for slot in Endpoints.__slots__],
            self.redirect.uri, self.redirect.link, self.owner.binding, self.resource, self.scopes,
            *([self.owner.confirm_url] if self.owner.confirm_url else []),
            *([self.redirect.uri_name] if self.redirect.uri_name else []),
            *(["pkce refused"] if self.habits.pkce == "refused" else []),
            *([self.mcp.url] if self.mcp is not None else []),
            *([[self.also.name, self.also.config_digest]] if self.also is not None else []),
            *([[astuple(each) for each in self.connect_params]] if self.connect_params else []),
            *([astuple(asked), [astuple(each) for each in self.api.hosts]] if asked else []),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
