"""Entities for tests, and databases to keep them in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.flowtools.entities.database import Database, apply
from oauthbroker.flowtools.entities.definition import Entity, load_entity

ORDER: dict[str, Any] = {
    "name": "Order",
    "fields": {
        "customerId": {"type": "string", "required": True},
        "total": {"type": "number", "required": True},
        "count": {"type": "integer"},
        "gift": {"type": "boolean"},
        "note": {"type": "string"},
        "day": {"type": "date"},
        "ref": {"type": "uuid"},
    },
    "status": {"initial": "open", "transitions": {"open": ["paid", "cancelled"], "paid": [], "cancelled": []}},
    "invariants": [{"expression": "order.total >= 0", "message": "The total is negative"}],
    "rowPolicy": {"field": "customerId", "allRows": ["staff"]},
}


def entity_of(document: dict[str, Any]) -> Entity:
    return load_entity(json.dumps(document).encode(), "entity.json")


def database_with(url: str, *documents: dict[str, Any]) -> Database:
    database = Database(url)
    apply(database, [entity_of(each) for each in documents])
    return database


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'flows.db'}"


def url_of(database: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a new database, of `sqlite` or `postgresql`."""
    if database == "sqlite":
        return sqlite_url(folder)
    server = request.getfixturevalue("postgres_server")
    server.empty_database(folder.name.lower())
    found: str = server.url(folder.name.lower()).reveal()
    return found
