"""The kit of runs shows all that there is: a row that it left out would count as lost."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from oauthbroker.flowtools.entities.database import table_of
from oauthbroker.flowtools.entities.rows import MOST_ROWS
from tests.unit.flowtools.run_kit import world_in


def test_a_world_shows_more_rows_than_one_read_returns(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    rows = [{"id": f"{at:05}", "version": 1, "text": f"line {at:05}"} for at in range(MOST_ROWS + 1)]
    with world.database.transaction() as connection:
        connection.execute(sa.insert(table_of(world.entities["Log"])), rows)
    assert [row["text"] for row in rows] == world.texts()
