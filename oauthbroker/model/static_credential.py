"""A static credential (`CredentialApp`): the fields that a person types, where a request carries them, and the request
that checks them before they are stored.

The values of a connection lie in its grant as one secret text, so that they are sealed, replaced and erased together.
"""

from __future__ import annotations

import base64
import json
import re
import weakref
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Literal
from urllib.parse import quote

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.connect_params import filled
from oauthbroker.model.outside_values import OutsideValue

Placing = Literal["headers", "basic", "query", "path", "awsSigV4", "oauth1"]
Values = Mapping[str, str]
FLOW = "static_credential"  # of grants and sessions, in place of an OAuth flow
TOKEN_TYPE = "credential"
LONGEST = 8 * 1024  # characters of a value
_ENDING, _LONG_ENOUGH = 4, 16  # characters of a value that pages show, and those of a value that may lose them
PATH_SAFE = ":"  # what a value in a path keeps, which is no separator there
_pattern = lru_cache(1024)(re.compile)
_SIGNED: Mapping[Placing, frozenset[str]] = {  # headers that belong to a signature
    "awsSigV4": frozenset({"authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}),
    "oauth1": frozenset({"authorization"}),
    "basic": frozenset({"authorization"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialField:
    """One secret that a person types. A value matches all of `pattern`, if there is one. `example` shows its form, and
    `obtain` is the provider's page where it is made."""

    name: str
    title: str
    pattern: str = ""
    example: str = ""
    obtain: str = ""

    def problem(self, value: str) -> Literal["", "missing", "characters", "long", "pattern"]:
        """Return why a value, without its outer blanks, is none. Empty for a value. Header fields and URLs take
        printable ASCII."""
        if not value:
            return "missing"
        if len(value) > LONGEST:
            return "long"
        if not (value.isascii() and value.isprintable()):
            return "characters"
        return "pattern" if self.pattern and not _pattern(self.pattern).fullmatch(value) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a request carries the values. `texts` are templates with `{field}`: by the header's name, by the query
    parameter's name, or by the word of the form (`username`, `path`, `secretAccessKey`, ...). `beside` are the texts of
    further headers."""

    kind: Placing
    texts: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> tuple[str, ...]:
        """Return the names of the headers that it sets: a caller's own are dropped."""
        own = tuple(self.texts) if self.kind == "headers" else tuple(sorted(_SIGNED.get(self.kind, ())))
        return (*own, *self.beside)

    @property
    def templates(self) -> tuple[str, ...]:
        """Return the texts, without what each is for."""
        return (*self.texts.values(), *self.beside.values())

    def filled(self, values: Values) -> dict[str, str]:
        """Return the texts with the values in place."""
        return {name: filled(text, values) for name, text in self.texts.items()}

    def signing(self, service: str) -> Placement:
        """Return a signature of AWS for another service."""
        return replace(self, texts={**self.texts, "service": service})

    def at(self, texts: Mapping[str, str]) -> Placement:
        """Return the placement with a connection's parameters in its texts."""
        beside = {name: filled(text, texts) for name, text in self.beside.items()}
        return replace(self, texts=self.filled(texts), beside=beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The request that checks a credential: 2xx accepts it, 401, 403 and the statuses in `refused` refuse it. It goes
    to the first of `api.hosts`; a signature of AWS may go to another `host`, for its `service`."""

    path: str
    method: Literal["GET", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    refused: tuple[int, ...] = ()
    host: str = ""
    service: str = ""

    def at(self, texts: Mapping[str, str]) -> Verification:
        """Return the request with a connection's parameters in its host and path."""
        return replace(self, path=filled(self.path, texts), host=filled(self.host, texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCredential:
    """What a `CredentialApp` says of its credential. `life_days`: it ends so long after it was typed. `team_fallback`:
    a user without one uses the team's. `values` are the team's own, which the configuration holds, packed;
    `outside` says where further ones lie, by field."""

    fields: tuple[CredentialField, ...]
    placement: Placement
    verification: Verification | None = None
    life_days: int | None = None
    team_fallback: bool = False
    values: Secret | None = None
    outside: Mapping[str, OutsideValue] = field(default_factory=dict)

    def at(self, texts: Mapping[str, str]) -> StaticCredential:
        """Return it with a connection's parameters in place."""
        check = self.verification
        return replace(
            self, placement=self.placement.at(texts), verification=check.at(texts) if check is not None else None
        )

    def is_whole(self, packed: Secret) -> bool:
        """Tell whether each field has a value: a request without one would carry its `{name}`."""
        return {each.name for each in self.fields} <= unpacked(packed).keys()

    def problems(self, values: Values) -> dict[str, str]:
        """Return the problems of trimmed values, by field. Other names count as `unknown`, and in a username of Basic a
        `colon` would begin the password (RFC 7617 section 2)."""
        found: dict[str, str] = {each.name: each.problem(values.get(each.name, "")) for each in self.fields}
        username = self.placement.texts.get("username", "") if self.placement.kind == "basic" else ""
        colons = [name for name in found if f"{{{name}}}" in username and ":" in values.get(name, "")]
        found |= {name: "colon" for name in colons if not found[name]}
        found |= {name: "unknown" for name in values if name not in found}
        return {name: problem for name, problem in found.items() if problem}

    def endings(self, packed: Secret) -> dict[str, str]:
        """Return what pages show of a credential, by the titles of its fields: the last four characters of a long
        value, and nothing of a short one."""
        values = unpacked(packed)
        found = {each.title: values[each.name] for each in self.fields if each.name in values}
        return {title: text[-_ENDING:] if len(text) >= _LONG_ENOUGH else "" for title, text in found.items()}

    @property
    def places(self) -> tuple[str, ...]:
        """Return the provider's pages on which it is made and ended."""
        return tuple(dict.fromkeys(each.obtain for each in self.fields if each.obtain))

    def parts(self, packed: Secret) -> tuple[Secret, ...]:
        """Return every text of a packed credential that an answer may repeat."""
        return self.opened(packed).masked

    def opened(self, packed: Secret) -> OpenedCredential:
        """Return a packed credential, ready for requests. Kept as long as that secret itself is in memory."""
        known = _opened.get(id(packed))
        if known is not None and known[0]() is packed and known[1].credential is self:
            return known[1]
        values = unpacked(packed)
        beside = {name: filled(text, values) for name, text in self.placement.beside.items()}
        texts, masked = self.placement.filled(values), self._masked(values)
        found = OpenedCredential(credential=self, values=values, texts=texts, beside=beside, masked=masked)
        _opened[id(packed)] = (weakref.ref(packed, partial(_forget, _opened, id(packed))), found)
        return found

    def _masked(self, values: Values) -> tuple[Secret, ...]:
        """Return each value, and what requests make of it."""
        texts = [values[each.name] for each in self.fields if each.name in values]
        if self.placement.kind == "basic":
            texts.append(basic_of(self.placement.filled(values)))
        if self.placement.kind in {"query", "path", "oauth1"}:
            texts += [quote(text, safe=safe) for text in texts for safe in ("", "/", PATH_SAFE)]
        return tuple(Secret(text) for text in dict.fromkeys(texts))


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OpenedCredential:
    """A credential in the clear: its values, the texts of its placement with them, and what an answer must not
    repeat."""

    credential: StaticCredential
    values: Values
    texts: Mapping[str, str]
    beside: Mapping[str, str]
    masked: tuple[Secret, ...]


_opened = dict[int, tuple[weakref.ref[Secret], OpenedCredential]]()  # a Secret has no hash


def _forget(opened: dict[int, Any], key: int, _: weakref.ref[Secret]) -> None:
    """Drop an entry whose secret has ended, also when the names of this module are gone at the end of a process."""
    opened.pop(key, None)


def packed(values: Values) -> Secret:
    """Return the values as one secret text."""
    return Secret(json.dumps(dict(values), separators=(",", ":"), sort_keys=True))


def unpacked(secret: Secret) -> dict[str, str]:
    """Return the values of `packed`."""
    values: dict[str, str] = json.loads(secret.reveal())
    return values


def basic_of(texts: Mapping[str, str]) -> str:
    """Return the credentials of Basic (RFC 7617 section 2)."""
    return base64.b64encode(f"{texts['username']}:{texts['password']}".encode()).decode()
