"""RoomValue: a JSON value that an add-on room keeps under a key of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oauthbroker.records import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomValue:
    """One value of one room. `subjects` are those that it is about: erasing one of them removes the value."""

    room: str
    key: str
    value: Any
    subjects: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"RoomValue({self.room}, {len(self.subjects)} subjects)"

    def to_plaintext(self) -> bytes:
        spec = {"room": self.room, "key": self.key, "value": self.value, "subjects": list(self.subjects)}
        return codec.encode("RoomValue", {"spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> RoomValue:
        spec = codec.decode("RoomValue", body)["spec"]
        room, key, subjects = spec["room"], spec["key"], spec["subjects"]
        if not all(isinstance(text, str) for text in (room, key, *subjects)):
            raise TypeError("a room, a key and subjects are texts")
        return cls(room=room, key=key, value=spec["value"], subjects=tuple(subjects))
