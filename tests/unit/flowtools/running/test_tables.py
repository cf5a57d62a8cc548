"""The tables of runs are made where they are missing."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.journal import exist, prepare
from tests.unit.flowtools.entity_kit import sqlite_url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.run(f'create database "{tmp_path.name.lower()}"')
        url = server.url(tmp_path.name.lower()).reveal()
    made = Database(url)
    yield made
    made.engine.dispose()


def test_the_tables_are_made_once(database: Database) -> None:
    for there in (False, True):
        with database.transaction() as connection:
            assert there == exist(connection)
            prepare(connection)
            assert exist(connection)
