"""Facts of a connection that the token answer lacks and tools need: from the callback's query, from userinfo, and from
requests that the broker sends for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.model.connect_params import PLACEHOLDER, filled
from oauthbroker.model.provider_api import is_within

LONGEST_FACT = 512
SLOTS_OF_FACTS = ("token_url", "refresh_url", "revoke_url", "user_info_url")  # called after the callback


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFact:
    """A parameter of the callback. One of three says which values it may have: a `pattern` that matches all of it, the
    list `one_of`, or a name with one label before the suffix `within`. Only the last two may stand in a host. `default`
    is the value where the parameter is missing; without it the parameter is required."""

    pattern: str = ""
    one_of: tuple[str, ...] = ()
    within: str = ""
    default: str = ""

    @property
    def may_be_host(self) -> bool:
        return not self.pattern

    def admits(self, value: object) -> bool:
        """Return whether it is one of the declared values, to the letter."""
        if not isinstance(value, str) or len(value) > LONGEST_FACT:
            return False
        if self.one_of:
            return value in self.one_of
        if self.within:
            return is_within(value, self.within) and "." not in value.removesuffix(self.within)
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """A claim of the access token, a JWT."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRequest:
    """A GET with the new access token. Its answer is an element, or the list of them at `path`. `each` names the facts
    with their paths in an element, `label` the path of the text that users know it by. Only elements whose members
    equal those of `where` count. Of several, the user chooses on the page with `choose`; else none is taken."""

    url: str
    each: Mapping[str, str]
    path: str = ""
    label: str = ""
    where: Mapping[str, bool | str | TokenClaim] = field(default_factory=dict)
    choose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """What an app declares. `user_info` names facts with their paths in userinfo. `hmac`: the callback's query is
    signed with the client's secret, and believed only then."""

    callback: Mapping[str, CallbackFact] = field(default_factory=dict)
    hmac: bool = False
    user_info: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[FactRequest, ...] = ()

    @property
    def asked(self) -> bool:
        """Return whether the provider is asked for some of them after the exchange."""
        return bool(self.user_info or self.requests)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.callback, *self.user_info, *(name for each in self.requests for name in each.each))

    def at(self, texts: Mapping[str, str]) -> ConnectionFacts:
        """Return the facts with these texts in the place of `{placeholders}`: in the values that the callback may have,
        and in the addresses of requests."""
        callback = {
            name: replace(it, default=filled(it.default, texts), one_of=tuple(filled(one, texts) for one in it.one_of))
            for name, it in self.callback.items()
        }
        requests = tuple(replace(it, url=filled(it.url, texts)) for it in self.requests)
        return replace(self, callback=callback, requests=requests)

    def filled(self, url: str, known: Mapping[str, Any]) -> str:
        """Fill in the facts that may stand in a host. A missing or unusable one leaves its `{name}`, and the transport
        refuses the address."""
        if not self.callback:
            return url

        def host(found: re.Match[str]) -> str:
            fact = self.callback.get(found[1])
            value = None if fact is None else known.get(found[1], fact.default)
            usable = fact is not None and fact.may_be_host and fact.admits(value)
            return host_in(str(value)) if usable else found[0]

        return PLACEHOLDER.sub(host, url)


def host_in(value: str) -> str:
    """Return a fact as it stands in a host: some providers send an origin."""
    return value.removeprefix("https://")
