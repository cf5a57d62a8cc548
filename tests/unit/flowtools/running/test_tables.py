"""The tables of runs are made where they are missing, and those of a development version are refused."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running.journal import RUN, exist, prepare
from tests.unit.flowtools.entity_kit import sqlite_url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    url = sqlite_url(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.empty_database(tmp_path.name.lower())
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


def test_tables_of_a_development_version_are_refused_with_what_to_do_and_stay_as_they_are(database: Database) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {RUN.name} (id TEXT PRIMARY KEY, lease_until DOUBLE PRECISION)")
    for look in (exist, prepare):
        reported = r"development version made .*: remove .*flow_run.*, then start"
        with pytest.raises(ValueError, match=reported), database.transaction() as connection:
            look(connection)
    with database.transaction() as connection:
        assert [RUN.name] == sa.inspect(connection).get_table_names()
