"""The base of what one line of the audit log can say."""

from __future__ import annotations

from typing import Any, dataclass_transform

from oauthbroker.core.dataclasses import dataclass


@dataclass_transform(frozen_default=True, kw_only_default=True)
class LineType:
    """The base of everything that the log can say. A subclass is a frozen, keyword-only dataclass; its members are
    written in their order."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def type_name(cls) -> str:
        """Return the type as the log spells it."""
        return cls.__name__

    @classmethod
    def types(cls) -> list[type[Any]]:
        """Return the types of this kind that stand beside it. Those of plug-ins are elsewhere."""
        return [each for each in cls.__subclasses__() if each.__module__ == cls.__module__]

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of these types."""
        return sorted({each.type_name() for each in cls.types()})
