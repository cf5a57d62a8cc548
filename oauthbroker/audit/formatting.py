"""Format audit entries as JSON, with pseudonyms in place of grants, conversations and persons."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from json.encoder import encode_basestring_ascii

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.line_type import LineType
from oauthbroker.core.clock import to_iso

PERSON = "person"  # the kind of a person's pseudonym: one for all members
_PSEUDONYMS = {  # members that are written as pseudonyms, and their kinds
    "grant": "grant",
    "instance": "instance",
    "target": "target",
    "actor": PERSON,
    "by": PERSON,
    "subject": PERSON,
}
HASHED = _PSEUDONYMS.keys() - {"target"}  # which may be written in clear
_JSON = json.JSONEncoder(separators=(",", ":"))

Naming = Callable[[str, str], str]
"""(kind, value) -> a pseudonym that only brokers with this store's keys can compute."""


def line_of(entry: AuditEntry, at: datetime, name: Naming | None = None) -> str:
    """Format one JSON line without a chain: `at`, `type`, then the entry's own fields. `name` as for `rest_of`."""
    return f'{{"at":"{to_iso(at)}",{rest_of(entry, name)}}}\n'


def rest_of(entry: LineType, name: Naming | None = None) -> str:
    """Format all but the time, without the closing brace. With `name`, grants, conversations and persons are written
    as pseudonyms."""
    body = f'"type":{_json(entry.type_name())}'
    for member, value in vars(entry).items():
        written = value
        if name is not None and value is not None and member in _PSEUDONYMS:
            written = _pseudonym(name, _PSEUDONYMS[member], str(value))
        body += f',"{member}":{encode_basestring_ascii(written) if type(written) is str else _json(written)}'
    return body


def _json(value: object) -> str:
    """Return the JSON of a member's value. An encoder, which is made anew each time, is left to unusual ones."""
    if type(value) is str:
        return encode_basestring_ascii(value)
    if value is None:
        return "null"
    return ("true" if value else "false") if type(value) is bool else _JSON.encode(value)


def _pseudonym(name: Naming, kind: str, value: str) -> str:
    """Return the pseudonym of a value. A target that is no grant is written in clear."""
    if kind == "target":
        return name("grant", value) if value.startswith("sha256:") else value
    return name(kind, value)
