"""Fit the data of a document into a model. Every wrong shape is reported and then left out; a misspelt word is reported
and then read as the word that was meant, so that it is one problem."""

from __future__ import annotations

import copy
import re
from typing import Any, TypeVar

from pydantic import ValidationError

from oauthbroker.config.problems.problems import ConfigInvalidError, Keys, Problems, dotted
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.reading.yaml_scalars import AMBIGUOUS, AMBIGUOUS_WORDS, UNREADABLE
from oauthbroker.config.written.fields import Strict
from oauthbroker.config.written.kinds import Kinds, Reader, known_names
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.foreign_code import is_from_outside, why_of
from oauthbroker.core.header_names import ORDINARY, spelled_text
from oauthbroker.core.spelling import nearest
from oauthbroker.providers.quirk_values import ADDRESS, AWS_HOST, LINE

S = TypeVar("S", bound=Strict)
_Error = tuple[str, Keys, dict[str, Any]]
_LITERAL = re.compile(r"'([^']*)'")

_BOUNDS = {"pattern", "expected", "ge", "gt", "le", "min_length", "max_length"}
_LENGTHS = {
    "string_too_short": ("too short", "write at least {} characters", "min_length"),
    "string_too_long": ("too long", "write at most {} characters", "max_length"),
    "too_short": ("too few items", "write at least {}", "min_length"),
    "too_long": ("too many items", "write at most {}", "max_length"),
}

# pydantic's type of error -> (what, what to do). Its own sentences may quote the input and are never used.
_WORDS: dict[str, tuple[str, str]] = {
    "string_type": ("not text", "write text, in quotes if it looks like a number or a date"),
    "string_pattern_mismatch": ("not a usable name", "use letters, digits, '-', '_' and '.', at most 128"),
    "int_type": ("not a whole number", "write digits without quotes"),
    "float_type": ("not a number", "write digits without quotes"),
    "bool_type": ("neither true nor false", "write true or false"),
    "list_type": ("not a list", "write a list: [a, b]"),
    "dict_type": ("not a mapping", "write fields under it"),
    "model_type": ("not a mapping", "write fields under it"),
    "reference": ("not a reference", 'write "Kind/name" or {kind, name}'),
    "bare_secret": (
        "a secret as plain text",
        "write {valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}} or {valueFrom: {env: NAME}}",
    ),
    "tool_data": ("a name like a secret's, which no tool is told", "use another name"),
    "kept_secret": ("a name like a secret's, which is not kept", "remove it"),
    "header_twice": ("the same header twice", "keep one of them: large and small letters are the same"),
    "placeholder": (
        "a name in braces that is not filled in",
        "write {client_id}, or under revoke {token} or {client_secret}, or text without braces",
    ),
    "token_type": ("not a token type", "write visible ASCII and single blanks within, at most 64"),
    "token_member_twice": ("two members of one name", "write each name once under tokenNames"),
    "revoke_no_token": (
        "a revocation that names no token",
        "write authenticate: bearer, or a body, or {token} in a header",
    ),
    "revoke_param": ("a member that has the token already", "remove it from params, or write another tokenField"),
    "fact_name": ("a parameter of the protocol", "remove it: the broker reads it itself"),
    "fact_pattern": ("not a regular expression", "write one that matches the whole value, such as [0-9]+"),
    "fact_within": ("not a domain of its own", "write a dot and at least two labels, such as .my.example.com"),
    "header_name": ("not a header that may be set here", "write letters, digits and -; some are ours alone"),
    "token_header": (
        "not a header for a token",
        "write the provider's own one; for another scheme in Authorization write tokenScheme",
    ),
    "template": ("not a text for a credential", "write one line of plain characters, and names in braces: {apiKey}"),
    "path": ("not a path", "write one that begins with a slash, without .. and //"),
    "path_prefix": ("not a path with a field", "write one such as /bot{token}, without a slash at its end"),
    "field_pattern": ("not a regular expression", "write one that matches the whole value, such as [0-9a-f]{32}"),
    "inject_one": ("two forms, where a request has one", "keep one of them; only headers may stand beside another one"),
    "inject_twice": ("the same header twice", "remove one: bearer, basic and signatures set Authorization"),
    "scheme": ("not a scheme", 'write one word of letters, digits, - _ ., or "" for the bare token'),
    "our_param": ("a parameter that is ours to set", "write the name that the provider uses"),
    "param_twice": ("two parameters of one name", "write another name under paramNames or scopeParam"),
    "revoke_none": ("no revocation, yet more about it", "with kind: none write nothing else"),
    "revoke_rfc7009": ("RFC 7009 leaves nothing of that open", "remove it, or write kind: own"),
    "revoke_reach": ("a revocation that ends nothing", "write reach: token or grant, or kind: none"),
    "revoke_get": ("a GET has no body", "write body: none, or another method"),
    "revoke_body": (
        "something for a body that is not there",
        "remove tokenField and params, or write body: form or json",
    ),
    "ok_value": (
        "not a value that can be compared",
        "write true, false, a whole number, or text of at most 64 characters",
    ),
    "grant_type": ("not a grant type of a provider's own", "write small letters, digits and _, at most 64"),
    "token_param": ("not a parameter for the token", "write letters, digits and _, at most 64, no name of ours"),
    "header_value": ("not a header's value", "write one line of plain characters, at most 512"),
    "bound_token": (
        "a type of tokens that are bound to a key, or no access tokens",
        "remove it, and have the provider issue Bearer tokens to this client",
    ),
    "error_word": ("not an error word", "write visible ASCII and single blanks within, at most 80"),
    "member_name": ("not a member's name", "write letters, digits, _ and -, with a dot between two names, at most 64"),
    "scope": ("not a scope", "write one scope an item, no spaces, quotes or commas"),
    "issuer_template": ("not an issuer", "write https://host/{claim}/path"),
    "anyone_in_list": ("the word `anyone` stands in a list", "write `authorizers: anyone`, or name accounts"),
}

# What a text has to match, where that is no name.
_WORDS_OF_PATTERN = {
    AWS_HOST: (
        "not a host of AWS",
        "remove it: the check goes to the first of api.hosts, which a preset has from params",
    ),
    ADDRESS: ("not an https address", "write https://host/path"),
    LINE: ("not one line of text", "remove line breaks and control characters"),
}


def report_broken(reader: Reader, document: YamlDocument, problems: Problems, error: BaseException) -> None:
    """Report that code of a plug-in raised, without the exception's text: it may quote the resource."""
    what = f"the plug-in {reader.plugin} could not read this resource: {why_of(error)}"
    problems.add(document.value_at(("kind",)), "kind", what, "update the package of the plug-in, or remove its name")


@dataclass(frozen=True, slots=True)
class Shaping:
    """One document on its way into models. `respelt` are the paths of misspelt words, read as the right ones."""

    document: YamlDocument
    problems: Problems
    kinds: Kinds
    respelt: set[Keys] = field(default_factory=set, init=False)

    def read(self, reader: Reader, spec: dict[str, Any]) -> tuple[Strict | None, set[Keys]]:
        """Return what `validate` returns. A plug-in's model that raises is a problem of its own."""
        try:
            return self.validate(reader.model, spec, ("spec",))
        except ConfigInvalidError:  # too many problems
            raise
        except BaseException as error:
            if not reader.plugin or is_from_outside(error):
                raise
            broken = error
        report_broken(reader, self.document, self.problems, broken)
        return None, set()

    def validate(self, model: type[S], data: dict[str, Any], base: Keys) -> tuple[S | None, set[Keys]]:
        """Return the model of all parts with the right shape, and the paths that were removed. None if a required part
        is missing, or the whole is wrong, which only plug-ins' models can say."""
        data = copy.deepcopy(data)
        rest, gone = copy.deepcopy(data), set[Keys]()
        while errors := _errors(model, rest):
            respelt = [self._respell(model, error, data, rest, base) for error in errors]
            if any(respelt):
                continue
            earlier, before = frozenset(gone), len(gone)
            for kind, loc, context in errors:
                path = self._absent(loc, data, base, gone) if kind == "missing" else None
                told = (*base, *_existing(data, loc)[0])
                if path is None and (told in gone or any(each[: len(told)] == told for each in earlier)):
                    path = told[len(base) :]  # it follows from the part that was left out
                path = self._report(model, kind, loc, context, data, base) if path is None else path
                gone.add((*base, *_remove(rest, path)))
            if len(gone) == before:
                return None, gone
        return model.model_validate(rest), gone

    def _respell(self, model: type[Strict], error: _Error, data: Any, rest: Any, base: Keys) -> bool:
        """Report a misspelt field or word, and put the one that was meant in its place, in both forms of the data.
        Return whether it is one."""
        kind, loc, context = error
        path, value = _existing(rest, loc)
        full = (*base, *path)
        if path != loc or full in self.respelt:
            return False
        if kind == "extra_forbidden":
            known = known_names(model, path)
            meant, beside = nearest(str(path[-1]), known), _existing(rest, path[:-1])[1]
            if not meant or meant in beside or self._is_of_oauth(full):
                return False
            self._unknown(full, known)
            self.respell(meant, full, path, data, rest)
            return True
        is_word = kind == "literal_error" and isinstance(value, str)
        meant = nearest(value, _LITERAL.findall(context["expected"])) if is_word else ""
        if not meant:
            return False
        self._report(model, kind, loc, context, data, base)
        self.respelt.add(full)
        for each in (data, rest):
            _existing(each, path[:-1])[1][path[-1]] = meant
        return True

    def respell(self, meant: str, full: Keys, path: Keys, *data: Any) -> None:
        """Rename the last step of `path`, which the whole document calls `full`."""
        self.document.respelt[*full[:-1], meant] = str(path[-1])
        self.respelt.add((*full[:-1], meant))
        for each in data:
            above = _existing(each, path[:-1])[1]
            above[meant] = above.pop(path[-1])

    def _unknown(self, full: Keys, known: list[str]) -> None:
        close = nearest(str(full[-1]), known)
        hint = f"the nearest known name is {close}" if close else f"known here: {', '.join(sorted(known))}"
        if self._is_of_oauth(full):
            close, hint = str(full[-1]), "it belongs to kind: OAuthApp; a credential has `fields`, which a person types"
        shown = (*self.kinds.masked(full[:-1]), full[-1] if close else "?")  # a word like none of ours may be a value
        self.problems.add(self.document.key_at(full), dotted(shown), "unknown field", hint)

    def _is_of_oauth(self, full: Keys) -> bool:
        """Tell whether a CredentialApp has a field of an OAuthApp."""
        return self.document.kind == "CredentialApp" and len(full) == 2 and full[1] in known_names(OAuthAppSpec, ())

    def _absent(self, loc: Keys, data: Any, base: Keys, gone: set[Keys]) -> Keys:
        """Report a required field that is absent. Return the part to leave out."""
        above, _ = _existing(data, loc[:-1])
        full = (*base, *above, loc[-1])
        if full not in gone:
            self.problems.add(self.document.value_at(full), dotted(self.kinds.masked(full)), "missing", "write it")
        return above

    def _report(
        self, model: type[Strict], kind: str, loc: Keys, context: dict[str, Any], data: Any, base: Keys
    ) -> Keys:
        """Report the problem at `loc`. Return the part of it that exists in the data."""
        document, problems, masked = self.document, self.problems, self.kinds.masked
        path, value = _existing(data, loc)
        full = (*base, *path)
        if value is UNREADABLE or full in self.respelt:  # reported already
            return path
        if kind == "extra_forbidden":
            self._unknown(full, known_names(model, path))
            return path
        if value is AMBIGUOUS:
            what, hint = AMBIGUOUS_WORDS
        elif value is None:
            what, hint = "empty", "write a value or remove the field"
        else:
            what, hint = _words(kind, context)
        shown = masked(full)
        if kind == "token_header" and spelled_text(str(full[-1])).encode() in ORDINARY:
            shown, what = (*shown[:-1], full[-1]), f"{full[-1]} is {what}"
        place = document.key_at(full) if value is None else document.value_at(full)
        problems.add(place, dotted(shown), what, hint)
        return path


def _errors(model: type[Strict], data: Any) -> list[_Error]:
    """Return (type, path, bounds) of every error, and nothing that came from the input."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return [
            (it["type"], it["loc"], {k: v for k, v in it.get("ctx", {}).items() if k in _BOUNDS})
            for it in error.errors(include_input=False, include_url=False)
        ]
    return []


def _words(kind: str, context: dict[str, Any]) -> tuple[str, str]:
    if kind == "literal_error":
        return "unknown value", f"use {context['expected']}"
    if kind == "greater_than_equal":
        return "too small", f"write at least {context['ge']:.15g}"
    if kind == "greater_than":
        return "too small", f"write more than {context['gt']:.15g}"
    if kind == "less_than_equal":
        return "too large", f"write at most {context['le']:.15g}"
    if kind in _LENGTHS:
        what, hint, bound = _LENGTHS[kind]
        return what, hint.format(context[bound])
    if context.get("pattern") in _WORDS_OF_PATTERN:
        return _WORDS_OF_PATTERN[context["pattern"]]
    return _WORDS.get(kind, ("not valid here", "correct it, or remove it"))


def _existing(data: Any, loc: Keys) -> tuple[Keys, Any]:
    """Return the longest part of `loc` that exists in the data, and its value. References add steps of their own."""
    path: Keys = ()
    for step in loc:
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not in_list and not (isinstance(data, dict) and step in data):
            break
        data = data[step]
        path = (*path, step)
    return path, data


def _remove(data: Any, path: Keys) -> Keys:
    """Take the nearest mapping entry at or above `path` out of the data; return what went."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if not path:  # the whole is wrong
        return path
    for step in path[:-1]:
        data = data[step] if not isinstance(data, dict) or step in data else {}
    data.pop(path[-1], None)
    return path
