"""Write an OAuthApp for a provider without a preset: it loads as it is, and explains its lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from oauthbroker.core.dataclasses import dataclass

_AUTH_METHODS = ("client_secret_basic", "client_secret_post")
_MOST_OFFERED = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProvider:
    """The known facts of a provider. `endpoints` are as in `spec.endpoints`, an `issuer` alone where its metadata has
    the rest. `account` is the member that names an account; `offered` are the scopes that the metadata lists.
    `personal`: the app is one person's own, for `oauthbroker login`."""

    name: str
    endpoints: Mapping[str, str]
    scopes: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = _AUTH_METHODS
    account: str = "sub"
    source: str = "idToken"
    api_hosts: tuple[str, ...] = ()
    personal: bool = False


def own_app_yaml(provider: OwnProvider) -> str:
    """Return the resource. Texts of others are quoted as JSON, which is YAML too."""
    head = "apiVersion: agents.example.io/v1alpha1\nkind: OAuthApp\n"
    return f"{head}metadata: {{name: {_quoted(provider.name)}}}\nspec:\n" + "".join(
        f"  {line}\n" for line in _lines(provider)
    )


def _lines(provider: OwnProvider) -> Iterator[str]:
    env = re.sub(r"[^A-Z0-9]", "_", provider.name.upper())
    method = next((each for each in _AUTH_METHODS if each in provider.auth_methods), _AUTH_METHODS[0])
    yield f"provider: {_quoted(provider.name)} # a name of your own, which no preset has"
    yield "flow: authorizationCode"
    yield "subjectMode: user # or global: one account for a whole team"
    yield "client:"
    yield f"  clientId: {{valueFrom: {{env: {env}_CLIENT_ID}}}}"
    yield f"  clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/{provider.name}, key: client_secret}}}}}}"
    yield f"  authMethod: {method} # how the client shows its secret at the token endpoint"
    yield "endpoints:"
    for name, url in provider.endpoints.items():
        yield f"  {name}: {_quoted(url)}"
    if params := dict.fromkeys(re.findall(r"\{(\w+)\}", " ".join(provider.endpoints.values()))):
        yield f"connectParams: {_quoted({name: {} for name in params})} # what differs for each connection"
    elif provider.personal:
        yield "accounts: several"
    yield f"scopes: {_quoted(list(provider.scopes))} # the most this app may ever have"
    others = [each for each in provider.offered if each not in {*provider.scopes, "openid", "offline_access"}]
    if others:
        yield f"# the provider offers {_quoted(others[:_MOST_OFFERED])}"
    yield "owner:"
    if provider.personal:
        yield "  binding: localOperator # the user is the person at this machine"
    yield "  identity: # an id that never changes: no e-mail address, no name"
    template = f"{provider.name}:user:{{{provider.account}}}"
    yield f"    user: {{from: {provider.source}, template: {_quoted(template)}}}"
    if provider.api_hosts:
        yield f"api: {{hosts: {_quoted(list(provider.api_hosts))}}} # where tools' requests may carry the token"
    else:
        yield "# api: {hosts: [api.example.com]} # where tools' requests may carry the token"
    if "offline_access" in provider.offered:
        yield "quirks: {alwaysScopes: [offline_access]} # asks for a refresh token"
    elif provider.source == "userInfo":
        yield "quirks: {userInfoKind: own} # no OpenID behind it"


def _quoted(value: object) -> str:
    return json.dumps(value)
