"""PluginValue: a JSON value that a plug-in keeps under a key of its own."""

from __future__ import annotations

from typing import Any

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.records import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginValue:
    """One value of one plug-in. `subjects` are those that it is about: erasing one of them removes the value."""

    plugin: str
    key: str
    value: Any
    subjects: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PluginValue({self.plugin}, {len(self.subjects)} subjects)"

    def to_plaintext(self) -> bytes:
        return codec.encode("PluginValue", {"spec": codec.members(self)})

    @classmethod
    def from_plaintext(cls, body: bytes) -> PluginValue:
        spec = codec.decode("PluginValue", body)["spec"]
        if not all(isinstance(text, str) for text in (spec["plugin"], spec["key"], *spec["subjects"])):
            raise TypeError("a plug-in, a key and subjects are texts")
        return codec.made(cls, spec)
