"""Audit entries of plug-ins. Their types are `<plugin>.<Type>` in the log, so none is taken for one of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from oauthbroker.audit import AuditEntry
from oauthbroker.audit.formatting import HASHED
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import MisuseError

Members = dict[str, frozenset[type]]
_LOGGABLE = frozenset({str, int, bool, NoneType})
LONGEST = 1024  # characters: no text of the broker's own entries is longer
_TAKEN = frozenset({"seq", "at", "type", "mac", "genuine", "slot"})
_WRITTEN = re.compile(r"[a-z][a-z0-9_-]*\.[A-Za-z][A-Za-z0-9_]*")


class PluginAuditEntry(AuditEntry):
    """The base of a plug-in's entries: `class ToolCalled(PluginAuditEntry, plugin="tools")`,
    with members of type str, int, bool or None, passed by name. A frozen dataclass by itself: without a decorator.

    A member `grant`, `instance`, `actor`, `by` or `subject` is written as a pseudonym; those of one person are the
    same. No other member holds a person, and none a secret. Another text has at most LONGEST characters, an integer 64
    bits.
    """

    plugin: ClassVar[str] = ""

    def __init_subclass__(cls, *, plugin: str) -> None:
        cls.plugin = plugin
        super().__init_subclass__()

    @classmethod
    def type_name(cls) -> str:
        """Return the type as it stands in the log: `<plug-in>.<class>`."""
        return f"{cls.plugin}.{cls.__name__}"

    @classmethod
    def types(cls) -> list[type[Any]]:
        """Return the types of the plug-ins that this process has imported."""
        return cls.__subclasses__()


PluginAudit = Callable[[PluginAuditEntry], None]
"""`Broker.audit`: writes an entry, before the act. Raises BrokerError: then the act must not happen."""


def is_of_plugin(type_name: str) -> bool:
    """Tell whether a type in the log is one of a plug-in, which may not be installed any longer."""
    return _WRITTEN.fullmatch(type_name) is not None


@dataclass(slots=True)
class PluginAuditTypes:
    """The entries that the plug-ins in use may write. `declared` returns those of a plug-in by its name, none if it is
    not in use: a command's broker opens no plug-in, and looks when the first entry is written."""

    declared: Callable[[str], object]
    _members: dict[type, Members] = field(default_factory=dict)

    def register(self, plugin: str) -> None:
        """Add the types of a plug-in. Raises `configInvalid`, with a note that names the problem."""
        types = self.declared(plugin)
        for each in types if isinstance(types, tuple | list) else (types,):
            if not (isinstance(each, type) and issubclass(each, PluginAuditEntry) and each.plugin == plugin):
                raise _refused(
                    plugin, "audit_types names a tuple of subclasses of PluginAuditEntry with this plug-in's name"
                )
            self._members[each] = _members_of(plugin, each)

    def check(self, entry: AuditEntry) -> None:
        """Raise `requestInvalid` for an entry of no plug-in in use, or with a value of another type than declared."""
        if type(entry) not in self._members and isinstance(entry, PluginAuditEntry):
            self.register(entry.plugin)
        declared = self._members.get(type(entry))
        if declared is None:
            note = f"spec.plugins of the Broker names no plug-in with the audit entry {entry.type_name()}"
            raise MisuseError(note)
        if any(type(value) not in declared[name] for name, value in vars(entry).items()):
            raise MisuseError(f"an audit entry {entry.type_name()} with a wrong member")
        for name, value in vars(entry).items():
            if name not in HASHED and type(value) in {str, int} and not _fits(value):
                note = f"an audit entry {entry.type_name()} whose {name} is longer than {LONGEST} characters or 64 bits"
                raise MisuseError(note)


def _members_of(plugin: str, entry: type[PluginAuditEntry]) -> Members:
    try:
        hints = get_type_hints(entry)
    except Exception:  # noqa: BLE001  (a name that the plug-in's module lacks)
        hints = {"": object}
    if not is_of_plugin(entry.type_name()) or not all(map(str.isascii, hints)):
        raise _refused(plugin, f"the audit entry {entry.__name__!a} and its members are named with A-Z, a-z, 0-9 and _")
    members = {name: _options(hint) for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    for name, options in members.items():
        if name in _TAKEN or not options <= _LOGGABLE:
            raise _refused(plugin, f"the member {name} of the audit entry {entry.__name__} may not stand in the log")
    return members


def _fits(value: str | int) -> bool:
    return len(value) <= LONGEST if isinstance(value, str) else value.bit_length() < 64


def _options(hint: Any) -> frozenset[type]:
    return frozenset(get_args(hint) if get_origin(hint) in {Union, UnionType} else {hint})


def _refused(plugin: str, problem: str) -> BrokerError:
    return BrokerError(Code.CONFIG_INVALID, note=f"the plug-in {plugin}: {problem}")
