"""Public names that are imported when they are first used."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def lazily(
    module: str, places: Mapping[str, Collection[str]], extras: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], Any]:
    """Return the `__getattr__` of `module`. `places`: the names that each module below `oauthbroker` defines. `extras`:
    the extra that a place needs. Its names raise UnfitExtra if a package of it is missing, or out of range."""

    def find(name: str) -> Any:
        place = next((place for place, names in places.items() if name in names), None)
        if place is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if place in extras:
            import_module("oauthbroker.core.extras").check_extra(extras[place])
        try:
            value = getattr(_imported(f"oauthbroker.{place}"), name)
        except ModuleNotFoundError as error:  # a package that no extra installs
            if place not in extras:
                raise
            missing = (error.name or "").partition(".")[0].replace("_", "-")
            unfit: type[ImportError] = import_module("oauthbroker.core.extras").UnfitExtra
            raise unfit(f"{name} needs {missing}, which is not installed. Run: `pip install {missing}`") from None
        setattr(sys.modules[module], name, value)
        return value

    return find


def _imported(module: str) -> Any:
    """Import a module without the garbage collector, which would search all that imports make for garbage again and
    again: a tenth of a start. The objects count as old then, as they would after these searches."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if was_on:
            if not gc.get_freeze_count():  # else the program's own frozen objects would thaw
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()
