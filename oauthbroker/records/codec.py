"""Canonical JSON for plaintexts: one schema number, sorted keys, no spaces. Any other form is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache, lru_cache, partial
from operator import itemgetter
from types import MemberDescriptorType, NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from oauthbroker.core.clock import from_iso, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret

API_VERSION = "agents.example.io/v1alpha1"
SCHEMA = 1
_NO_MEMBER = ""  # in place of the name of a field that the record writes itself
T = TypeVar("T")
Form = Callable[[Any], Any]
_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode

# Metadata of a record's fields. A member has its field's name in camelCase, unless `named` says another one.
OPTIONAL: dict[str, Any] = {"optional": True}  # left out while it has its default value
APART: dict[str, Any] = {"apart": True}  # the record writes this field itself


def named(member: str) -> dict[str, Any]:
    return {"member": member}


class _Forms(NamedTuple):
    """How a value of a type is written and read; None: as it is. `nullable`: it may be None, in both."""

    write: Form | None = None
    read: Form | None = None
    nullable: bool = False


class _Member(NamedTuple):
    attribute: str
    name: str
    optional: bool
    default: Any
    forms: _Forms


def members(record: Any) -> dict[str, Any]:
    """Return a record's members. It holds secrets in clear: for the seal only."""
    data: dict[str, Any] = {}
    for attribute, name, optional, default, (write, _, nullable) in _members_of(type(record)):
        value = getattr(record, attribute)
        if not optional or value != default:
            data[name] = value if write is None or (nullable and value is None) else write(value)
    return data


def made(kind: type[T], data: Mapping[str, Any], **apart: Any) -> T:
    """Make a record from its members. Raises KeyError, TypeError, ValueError."""
    reader = _reader_of(kind)
    values = [*reader.values({**reader.defaults, **data})]
    for at, name, read, nullable in reader.forms:
        if name in data and not (nullable and values[at] is None):
            values[at] = read(values[at])
    for attribute, value in apart.items():
        values[reader.places[attribute]] = value
    if not reader.setters:
        return kind(**dict(zip(reader.places, values, strict=True)))
    record = object.__new__(kind)
    for set_slot, value in zip(reader.setters, values, strict=True):
        set_slot(record, value)
    return record


def _plan(kind: Any) -> tuple[_Member, ...]:
    types = get_type_hints(kind)
    return tuple(
        _Member(
            each.name,
            each.metadata.get("member") or _camel(each.name),
            "optional" in each.metadata,
            each.default if each.default_factory is MISSING else each.default_factory(),
            _forms(types[each.name]),
        )
        for each in fields(kind)
        if "apart" not in each.metadata
    )


_members_of: Callable[[Any], tuple[_Member, ...]] = cache(_plan)


class _Reader(NamedTuple):
    """What `made` needs: the place of each field, a function that takes all their values at once, the values of members
    that may be left out, the forms of those that are not taken as they are, and the setters of the slots. A frozen
    record's own constructor looks each field up by its name, which takes three times as long."""

    places: Mapping[str, int]
    values: Callable[[Mapping[str, Any]], Sequence[Any]]
    defaults: Mapping[str, Any]
    forms: tuple[tuple[int, str, Form, bool], ...]
    setters: tuple[Callable[[Any, Any], None], ...] = ()


def _reading(kind: Any) -> _Reader:
    members = {each.attribute: each for each in _members_of(kind)}
    attributes = [each.name for each in fields(kind) if each.init]
    names = [members[name].name if name in members else _NO_MEMBER for name in attributes]
    placed = [(at, members[name]) for at, name in enumerate(attributes) if name in members]
    return _Reader(
        {name: at for at, name in enumerate(attributes)},
        itemgetter(*names) if len(names) > 1 else lambda data: [data[name] for name in names],
        {_NO_MEMBER: None} | {each.name: each.default for each in members.values() if each.optional},
        forms=tuple((at, each.name, each.forms.read, each.forms.nullable) for at, each in placed if each.forms.read),
        setters=_setters(kind),
    )


def _setters(kind: Any) -> tuple[Callable[[Any, Any], None], ...]:
    """Return the setters of a record whose constructor does nothing else; none for another one."""
    named_by = [getattr(kind, each.name, None) for each in fields(kind) if each.init]
    slots = [slot for slot in named_by if isinstance(slot, MemberDescriptorType)]
    is_plain = not hasattr(kind, "__post_init__") and len(slots) == len(fields(kind))
    return tuple(slot.__set__ for slot in slots) if is_plain else ()


_reader_of: Callable[[Any], _Reader] = cache(_reading)


def _forms(type_: Any) -> _Forms:
    if type_ is datetime:
        return _Forms(to_iso, from_iso)
    if type_ is Secret:
        return _Forms(Secret.reveal, Secret)
    if isinstance(type_, type) and is_dataclass(type_):
        write = getattr(type_, "to_record", getattr(type_, "to_json", members))
        return _Forms(write, getattr(type_, "from_json", partial(made, type_)))
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return _Forms(read=type_)
    inner = get_args(type_)
    if get_origin(type_) is tuple:
        write, read, _ = _forms(inner[0])
        if write is None:
            return _Forms(list, tuple)
        return _Forms(
            lambda values: [*map(write, values)], tuple if read is None else lambda values: tuple(map(read, values))
        )
    if get_origin(type_) is Mapping:
        return _Forms(write=dict)
    if NoneType in inner:
        return _forms(inner[0])._replace(nullable=True)
    return _Forms()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def encode(kind: str, data: Mapping[str, Any]) -> bytes:
    """Encode a record's plaintext, for the seal only."""
    body = {"apiVersion": API_VERSION, "kind": kind, "schema": SCHEMA, **data}
    return _json(body).encode()


def encode_listing(kind: str, record: Any) -> bytes:
    """Encode a plaintext whose `spec` is a record with long lists of others, few of which have changed since they were
    encoded. For records without secrets: their texts stay in memory."""
    texts = dict[str, str]()
    for attribute, name, *_ in _members_of(type(record)):
        value = getattr(record, attribute)
        listed = isinstance(value, tuple) and value and is_dataclass(value[0])
        texts[name] = f"[{','.join(map(_text, value))}]" if listed else _json(value)
    spec = ",".join(f'"{name}":{texts[name]}' for name in sorted(texts))
    return f'{{"apiVersion":"{API_VERSION}","kind":"{kind}","schema":{SCHEMA},"spec":{{{spec}}}}}'.encode()


@lru_cache(maxsize=4096)
def _text(record: Any) -> str:
    return _json(members(record))


def text_in_plaintext(text: str) -> bytes:
    """Return the bytes that every plaintext has which holds this text as a value."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


@cache
def _parser() -> Callable[[bytes], Any]:
    """Return a JSON parser that caches the names of members alone. By default it would keep up to 16,384 short strings
    of the documents that it has read, tokens among them."""
    from pydantic_core import from_json  # imported here: a client uses the records and decodes no plaintext

    return partial(from_json, cache_strings="keys")


def decode(kind: str, body: bytes) -> dict[str, Any]:
    """Decode a record's plaintext. Raises `recordCorrupt` for another kind, schema or shape."""
    try:
        data = _parser()(body)
    except ValueError:
        data = None
    if not isinstance(data, dict) or (data.get("apiVersion"), data.get("kind"), data.get("schema")) != (
        API_VERSION,
        kind,
        SCHEMA,
    ):
        raise BrokerError(Code.RECORD_CORRUPT, note=f"not a {kind} of schema {SCHEMA}")
    return data
