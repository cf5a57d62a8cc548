"""The audit entries of the sample room."""

from __future__ import annotations

from oauthbroker import RoomEntry


class NoteWritten(RoomEntry, room="sample"):
    """A note is being written. This entry is written first."""

    notebook: str
    caller: str | None
    pages: int


TYPES = (NoteWritten,)
