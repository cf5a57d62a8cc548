"""Parameters of a connection: what differs for each customer of a provider, such as a shop, a site or a region.

A value comes from the runtime, as the name of an account in a turn, or from the person on the connect page. It is kept
in the session and in the grant, and fills the `{name}` of the app's endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code

LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"  # one label of a host name, without dots
WORD = "[A-Za-z0-9_-]{1,64}"  # one segment of a path, or the value of a parameter
LONGEST = 253
SEPARATOR = ","  # between the values in the name of an account
_SAFE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_~-][A-Za-z0-9._~-]*")  # of a host, a segment of a path, a query's value
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_pattern = lru_cache(1024)(re.compile)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectParam:
    """One parameter. A value matches all of `pattern`, or is `one_of` the operator's list.

    `within` is what follows it in a host, such as `.myshopify.com`: a person may type the whole host. With
    `adds_suffix` the placeholder stands for the host, and the value for its first label. `derived` are
    the texts of further placeholders that follow from it: the first whose pattern matches the value.
    """

    name: str
    title: str = ""
    pattern: str = WORD
    one_of: tuple[str, ...] = ()
    within: str = ""
    adds_suffix: bool = False
    derived: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    def accepts(self, value: object) -> bool:
        """Tell whether it is a value, byte for byte. None leads out of its host label, path segment or parameter."""
        if not isinstance(value, str) or not is_safe(value):
            return False
        if self.within and not _pattern(LABEL).fullmatch(value):
            return False
        return value in self.one_of if self.one_of else _pattern(self.pattern).fullmatch(value) is not None

    def stands_for(self, text: str) -> bool:
        """Tell whether a text is what its placeholder may stand for in a host."""
        if self.adds_suffix:
            return text.endswith(self.within) and self.accepts(text.removesuffix(self.within))
        return self.accepts(text)

    def typed(self, text: str) -> str | None:
        """Return the value that a person means: a host may come with its scheme and its suffix, in any letter case.
        None for no value."""
        value = text.strip()
        if self.within:
            value = value.lower().removeprefix("https://").removesuffix("/").removesuffix(self.within)
        return value if self.accepts(value) else None

    def texts(self, value: str) -> dict[str, str]:
        """Return the texts of the placeholders that a value fills."""
        texts = {self.name: value + self.within if self.adds_suffix else value}
        for name, choices in self.derived:
            text = next((text for pattern, text in choices if _pattern(pattern).fullmatch(value)), None)
            if text is not None:
                texts[name] = filled(text, {self.name: value})
        return texts


def is_safe(value: str) -> bool:
    """Tell whether a value stays in its host label, path segment or parameter."""
    return len(value) <= LONGEST and _SAFE.fullmatch(value) is not None


def params_in(text: str) -> list[str]:
    """Return the names of the `{placeholders}` of an address or a template."""
    return PLACEHOLDER.findall(text)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill in placeholders. A missing value leaves its `{name}`."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def texts_of(params: Sequence[ConnectParam], values: Mapping[str, str]) -> dict[str, str] | None:
    """Return the texts of all placeholders. None unless each parameter has a value that it accepts, and no other has
    one."""
    if values.keys() != {param.name for param in params}:
        return None
    if not all(param.accepts(values[param.name]) for param in params):
        return None
    return {name: text for param in params for name, text in param.texts(values[param.name]).items()}


def values_of(params: Sequence[ConnectParam], account: str) -> dict[str, str]:
    """Return the values that the name of an account has, in the order of the parameters. Raises `accountForbidden` for
    another number, or a value that is none."""
    said = account.split(SEPARATOR)
    values = {param.name: value for param, value in zip(params, said, strict=False)}
    if len(said) != len(params) or texts_of(params, values) is None:
        raise BrokerError(Code.ACCOUNT_FORBIDDEN, note="the account's name is no value of connectParams")
    return values


def fill_slots(record: object, values: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a dataclass, filled in."""
    slots = type(record).__slots__  # type: ignore[attr-defined]
    return {slot: filled(text, values) for slot in slots if isinstance(text := getattr(record, slot), str)}
