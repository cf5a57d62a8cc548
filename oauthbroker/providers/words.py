"""A preset in words: its facts, each with its source. Unverified facts are marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oauthbroker.providers import Preset

_ENDPOINTS = {
    "authorizationUrl": "authorization endpoint",
    "tokenUrl": "token endpoint",
    "refreshUrl": "refresh endpoint",
    "revokeUrl": "revocation endpoint",
    "userInfoUrl": "who-am-I endpoint",
    "issuer": "issuer",
    "deviceAuthorizationUrl": "device endpoint",
    "jwksUrl": "key set",
    "pushedAuthorizationUrl": "pushed request endpoint",
}
_SEPARATORS = {" ": "spaces", ",": "commas", ", ": "commas and spaces", ";": "semicolons", "|": "bars"}
_SOURCES = {
    "tokenResponse": "the token answer",
    "idToken": "the verified ID token",
    "userInfo": "the who-am-I answer",
}
_METHODS = {
    "client_secret_basic": "HTTP Basic (client_secret_basic)",
    "client_secret_post": "id and secret in the body (client_secret_post)",
    "private_key_jwt": "a signed assertion (private_key_jwt)",
    "none": "its id alone (none)",
}
_AUDIENCES = {"issuer": "the issuer", "tokenEndpoint": "the token endpoint", "endpoint": "the endpoint that is asked"}
_REFRESH = {
    "none": "there are none: when a token is over, the person has to agree again",
    "keep": "stay the same when they are used",
    "rotate": "are replaced when they are used",
    "unknown": "not known whether they are replaced when they are used",
}
_PKCE = {
    "supported": "checked by the provider",
    "ignored": "sent, and ignored by the provider",
    "unknown": "sent; not known whether the provider checks it",
}
_LIFETIMES = {
    "seconds": "seconds",
    "milliseconds": "milliseconds",
    "epochSeconds": "a moment, in seconds since 1970",
    "epochMilliseconds": "a moment, in milliseconds since 1970",
    "iso": "a moment in ISO 8601",
    "none": "something that means nothing",
}
_EXTRAS = {"reject": "end the attempt", "ignore": "are ignored"}
_REACH = {"token": "that token alone", "grant": "everything the person gave this client", "none": "nothing"}


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a preset says. `path` is its place in the file; `unverified` are the parts without a source."""

    path: str
    label: str
    text: str
    source: str
    unverified: tuple[str, ...]

    @property
    def is_sure(self) -> bool:
        return not self.unverified

    @property
    def mark(self) -> str:
        """What to say beside the text: nothing, `unverified`, or which parts are."""
        if self.is_sure or self.source.startswith("unverified"):
            return "" if self.is_sure else "unverified"
        return f"unverified: {', '.join(self.unverified)}"


def facts(preset: Preset) -> list[Fact]:
    """Everything that is set, grouped so that it can be read: an endpoint, an identity, a note, or a field each."""
    units: dict[str, list[str]] = {}
    for path in preset.facts():
        if not path.startswith("modes."):
            units.setdefault(_unit(path), []).append(path)
    return [_fact(preset, unit, paths) for unit, paths in sorted(units.items(), key=lambda it: _place(it[0]))]


def own_facts(preset: Preset, mode: str) -> list[Fact]:
    """What a mode says otherwise than the preset it belongs to."""
    usual = {fact.path: fact.text for fact in facts(preset)}
    return [fact for fact in facts(preset.in_mode(mode)) if usual.get(fact.path) != fact.text]


def account(preset: Preset, mode: Literal["user", "global"]) -> tuple[str, bool]:
    """How an account is spelt, in one word for tables, and whether that is sure."""
    identity = preset.identity.user if mode == "user" else preset.identity.global_
    sure = not any(path.startswith(f"identity.{mode}.") for path in preset.unverified())
    if identity is None:
        return "write one", True
    return identity.template or f"{identity.source}, write a template", sure


def flows(preset: Preset) -> tuple[str, bool]:
    """The flows known to work there, and whether that is sure."""
    return " ".join(preset.flows), "flows" not in preset.unverified()


def _unit(path: str) -> str:
    steps = path.split(".")
    return ".".join(steps[: 2 if steps[0] in {"endpoints", "identity", "notes", "params"} else 1])


def _fact(preset: Preset, unit: str, paths: list[str]) -> Fact:
    name, _, inner = unit.partition(".")
    found = preset.model_dump(by_alias=True, exclude_unset=True)[name]
    value = found[int(inner)] if isinstance(found, list) and inner else found[inner] if inner else found
    label, text = _WORDS[name](inner, value)
    sources: dict[str, list[str]] = {}
    for path in paths:
        sources.setdefault(preset.source(path), []).append(path.removeprefix(f"{unit}."))
    if len(sources) == 1:
        source = next(iter(sources))
    else:
        source = "; ".join(f"{', '.join(parts)}: {said}" for said, parts in sources.items())
    doubtful = [part for said, parts in sources.items() if said.startswith("unverified") for part in parts]
    return Fact(unit, label, text, source, tuple(doubtful))


def _place(unit: str) -> tuple[int, int]:
    name, _, inner = unit.partition(".")
    ends = list(_ENDPOINTS)
    return list(_WORDS).index(name), ends.index(inner) if inner in ends else int(inner) if inner.isdigit() else 0


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _identity(mode: str, value: Mapping[str, Any]) -> tuple[str, str]:
    who = "a person is" if mode == "user" else "a team is"
    template = value.get("template") or "a template that you write"
    facts: Mapping[str, bool | str] = value.get("requires") or {}
    where = " and ".join(f"{name} is {str(said).lower()}" for name, said in facts.items())
    return who, f"{template}, read from {_SOURCES[value['from']]}{where and f' where {where}'}"


def _limit(value: Mapping[str, Any]) -> str:
    scopes = " and set of scopes" if value.get("per") == "clientAndScopes" else ""
    return f"{value['count']} of one account for one client{scopes}; one more ends the oldest"


def _lifetime(_: str, value: str) -> tuple[str, str]:
    return "lifetime", f"told as {_LIFETIMES[value]}"


def _revoke(_: str, value: Mapping[str, Any]) -> tuple[str, str]:
    kind = value.get("kind", "rfc7009")
    if kind == "none":
        return "revocation", "no way is known"
    how = "RFC 7009" if kind == "rfc7009" else f"its own way ({value.get('method', 'POST')})"
    which = {"access": ", takes access tokens", "refresh": ", takes refresh tokens"}.get(value.get("tokens", ""), "")
    return "revocation", f"{how}{which}; ends {_REACH[value.get('reach', 'grant')]}"


def _said(label: str, text: str) -> Callable[[str, Any], tuple[str, str]]:
    """Words with `{}` for the value, which may be a list or pairs."""

    def say(_: str, value: Any) -> tuple[str, str]:
        shown = _pairs(value) if isinstance(value, dict) else " ".join(value) if isinstance(value, list) else value
        return label, text.format(shown or "nothing")

    return say


def _one_of(label: str, words: Mapping[str, str], text: str = "{}") -> Callable[[str, Any], tuple[str, str]]:
    return lambda _, value: (label, text.format(words[value]))


def _whether(label: str, yes: str, no: str) -> Callable[[str, Any], tuple[str, str]]:
    return lambda _, value: (label, yes if value else no)


# In the order in which they are told.
_WORDS: dict[str, Callable[[str, Any], tuple[str, str]]] = {
    "params": lambda name, value: (
        f"parameter {name}",
        value["description"] + (f"; {value['default']} if left out" if value.get("default") else ""),
    ),
    "endpoints": lambda name, value: (_ENDPOINTS[name], value),
    "flows": _said("flows", "{}"),
    "authMethod": _one_of("the client shows", _METHODS),
    "assertionAudience": _one_of("a signed assertion", _AUDIENCES, "names {} as its audience"),
    "pkce": _one_of("PKCE", _PKCE),
    "identity": _identity,
    "refreshTokens": _one_of("refresh tokens", _REFRESH),
    "refreshTokenIdleDays": _said("refresh tokens", "end after {} days without use"),
    "refreshTokenDays": _said("refresh tokens", "end {} days after the person agreed, used or not"),
    "refreshTokenLeewaySeconds": _said("refresh tokens", "that were used work for {} seconds more"),
    "accessTokenIdleDays": _said("access tokens", "that have no end of their own end after {} days without use"),
    "tokenLimit": lambda _, value: ("tokens", _limit(value)),
    "revoke": _revoke,
    "scopeParam": _said("scopes", "asked for in the parameter {}"),
    "scopeSeparator": _one_of("scopes in requests", _SEPARATORS, "separated by {}"),
    "answerScopeSeparator": _one_of("scopes in answers", _SEPARATORS, "separated by {}"),
    "alwaysScopes": _said("always asked for", "{}"),
    "unlistedScopes": _said("granted unsaid", "{}"),
    "scopeAliases": _said("scopes spelt otherwise", "{}"),
    "scopePrefixes": _said("scopes spelt otherwise", "with and without {}"),
    "extraScopes": _one_of("unrequested scopes", _EXTRAS),
    "scopeless": _whether("scopes in answers", "say nothing that could be compared", "are compared"),
    "authorizeParams": _said("authorization request", "also has {}"),
    "tokenRequestFormat": _said("token requests", "have a body in {}"),
    "tokenHeaders": _said("token requests", "also have the headers {}"),
    "tokenParams": _said("exchange of the code", "also has {}"),
    "refreshParams": _said("refresh", "also has {}"),
    "refreshScope": _one_of("refresh", {"omit": "names no scopes", "send": "names the scopes again"}),
    "tokenResponseFormat": _said("token answers", "come in {}"),
    "tokenPath": _said("tokens", "lie at {}"),
    "refreshTokenPath": lambda _, value: ("tokens of a refresh", f"lie at {' '.join(value) or 'the top'}"),
    "tokenNames": _said("members of token answers", "are called {}"),
    "tokenTypeAliases": _said("token types", "{} means Bearer"),
    "tokenTypeOptional": _whether("token types", "left out, Bearer is meant", "always told"),
    "lifetimeField": _said("lifetime", "told in {}"),
    "lifetimeForm": _lifetime,
    "defaultLifetimeSeconds": _said("lifetime", "{} seconds where the answer does not say"),
    "errorMembers": _said("errors", "told by {}, also in a 200"),
    "errorWords": _said("errors", "in words of its own: {}"),
    "issuerTemplate": _said("issuer of ID tokens", "{}"),
    "issuerPromised": _whether("callbacks", "always name the issuer", "may leave out the issuer"),
    "idTokenAlgorithms": _said("ID tokens", "signed with {}"),
    "userInfoKind": _one_of("who-am-I", {"oidc": "OpenID's userinfo", "own": "a call of the provider's own"}),
    "userInfoMethod": _said("who-am-I", "asked by {}"),
    "userInfoBody": _said("who-am-I", "asked with {}"),
    "userInfoHeaders": _said("who-am-I", "asked with the headers {}"),
    "userInfoTokenHeader": _said("who-am-I", "takes the token in the header {}"),
    "userInfoTokenScheme": _said("who-am-I", "takes the token as Authorization: {}"),
    "keeps": _said("kept with the grant", "{}"),
    "toolData": _said("told to tools", "{}"),
    "notes": lambda _, value: ("note", value),
}
