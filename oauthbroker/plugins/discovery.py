"""Find the installed plug-ins by their entry points. Nothing of a plug-in is imported but its declaration."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.extras import missing_extra
from oauthbroker.core.foreign_code import ForeignFault, foreign_code, foreign_place, is_from_outside
from oauthbroker.core.foreign_text import LONGEST, harmless_text
from oauthbroker.plugins.declaration import Plugin, ResourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from oauthbroker.model.plugin_resources import PluginResources

GROUP: Final = "oauthbroker.plugins"
_OF_CODE: Final = (TypeError, ImportError, SyntaxError, AttributeError, NameError)


def installed() -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of the installed plug-ins, by name. The environment is searched once a process."""
    return _installed(tuple(sys.path))


@lru_cache(maxsize=4)
def _installed(_path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    return tuple(sorted(metadata.entry_points(group=GROUP), key=lambda it: it.name))


def declared(name: str) -> Plugin:
    """Return the declaration of an installed plug-in. Raises `configInvalid` with a note that names the plug-in."""
    found = [each for each in installed() if each.name == name]
    if not found:
        raise _refused(f"no plug-in {name} is installed")
    if len(found) > 1:
        raise _refused(f"the packages {' and '.join(sorted(map(package_of, found)))} both have a plug-in {name}")
    try:
        plugin = found[0].load()
    except BaseException as error:
        if is_from_outside(error):
            raise
        why = _why(error)
        broken = _refused(f"the plug-in {name} of {package_of(found[0])} cannot be imported: {why}")
    else:
        if isinstance(plugin, Plugin) and plugin.name == name:
            return plugin
        broken = _refused(f"the entry point {name} of {package_of(found[0])} is not a Plug-in of this name")
    raise broken


def package_of(point: metadata.EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return point.dist.name if point.dist is not None else "a package"


def named(plugin: Plugin, target: str) -> Any:
    """Import what a declaration names as `module:object`. Raises `configInvalid` with a note that names the plug-in."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except BaseException as error:
        if is_from_outside(error):
            raise
        broken = _refused(f"the plug-in {plugin.name} cannot import {target}: {_why(error)}")
    raise broken


def kinds_of(plugin: Plugin) -> tuple[ResourceKind, ...]:
    """Return the kinds of resources that a plug-in declares. Raises `configInvalid` with a note that names the
    plug-in."""
    kinds = named(plugin, plugin.kinds) if plugin.kinds else ()
    if isinstance(kinds, tuple) and all(isinstance(each, ResourceKind) for each in kinds):
        return kinds
    raise _refused(f"{plugin.kinds} of the plug-in {plugin.name} is not a tuple of ResourceKind")


def audit_types_of(plugin: Plugin) -> object:
    """Return what a plug-in names as its audit entries. Raises `configInvalid` with a note that names the plug-in."""
    return named(plugin, plugin.audit_types) if plugin.audit_types else ()


def check_audit_types(plugin: Plugin) -> None:
    """Raise `configInvalid`, as the start of a broker does, for audit entries that may not stand in the log."""
    from oauthbroker.audit.plugin_entry import PluginAuditTypes  # imported here: most bundles name no plug-in

    PluginAuditTypes(lambda _: audit_types_of(plugin)).register(plugin.name)


def secret_places_of(plugin: Plugin, store: Path, resources: PluginResources) -> tuple[str, ...]:
    """Return the files and folders of a plug-in that no tool is to read. Raises `configInvalid` with a note that names
    the plug-in."""
    if not plugin.secret_places:
        return ()
    whose = f"{plugin.secret_places} of the plug-in {plugin.name}"
    try:
        with foreign_code(whose):
            found = named(plugin, plugin.secret_places)(store, resources)
            places = tuple(found)
    except ForeignFault as fault:
        broken = str(fault)
    else:
        if not isinstance(found, str) and all(isinstance(each, str | PurePath) for each in places):
            return tuple(map(str, places))
        broken = f"{whose}: it returns a list of paths"
    raise _refused(broken)


def problems_of(plugin: Plugin) -> Iterator[str]:
    """Yield why a running broker could not use what the declaration names."""
    for target in filter(None, (plugin.open, plugin.erase, plugin.secret_places)):
        try:
            if not callable(named(plugin, target)):
                yield f"{target} of the plug-in {plugin.name} is no function"
        except BrokerError as error:
            yield error.note


def _why(error: BaseException) -> str:
    """Return why a module cannot be imported: the extra that it needs, or the exception and its line in the module's
    package. The text is repeated of those exceptions alone that speak of code: any other may quote a secret."""
    if extra := missing_extra(error):
        return extra
    text = harmless_text(str(error))[:LONGEST] if isinstance(error, _OF_CODE) else ""
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{said}{foreign_place(error)}"


def _refused(note: str) -> BrokerError:
    return BrokerError(Code.CONFIG_INVALID, note=note)
