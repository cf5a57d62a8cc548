"""Public names that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of `module`. `places`: each public name and the module that defines it."""

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(places[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return find
