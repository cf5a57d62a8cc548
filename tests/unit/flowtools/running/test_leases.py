"""A process that lost its run to another one commits nothing more."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.running.journal import RUN
from oauthbroker.flowtools.running.ports import Ports
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, STAFF, World, log, world_in


class Thief:
    """Takes the run while its effect is sent, as another process does after the lease."""

    takes_keys = False
    world: World

    def send(self, _: Any) -> Any:
        with self.world.database.transaction() as connection:
            connection.execute(sa.update(RUN).values(taken=RUN.c.taken + 1))
        return {}


@pytest.mark.rule("run-kills")
def test_a_run_that_another_process_has_taken_commits_nothing_more(tmp_path):
    thief = Thief()
    thief.world = world = world_in(tmp_path, ports=Ports(sms=thief))
    nodes = {"s": ("sms", {"to": "'a'", "body": "'b'"}), "tx": BEGIN, "l": log("x")}
    result = world.runs.call(world.flow(nodes, chain(*nodes)), {"id": "a"}, STAFF)
    assert ("running", [], []) == (result.state, world.texts(), world.audit())
