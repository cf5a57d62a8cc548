"""A room that uses every door. Its declaration imports nothing else of it."""

from __future__ import annotations

from oauthbroker import Room, RoomCommand

ROOM = Room(
    name="sample",
    commands={"notebooks": RoomCommand(help="Notebooks of the sample room: list.", app="sample_room.commands:app")},
    kinds="sample_room.specs:KINDS",
    audit_types="sample_room.audit_types:TYPES",
    open="sample_room.running:open_room",
)
