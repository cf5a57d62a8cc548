"""A database that is away while refreshes are under way, with short leases; `python -m tests.faults.outages` has long outages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oauthbroker.store.postgres.schema import migrate
from tests.faults.outages import HERE, NAME, FailedOver, Restarted, outage, two_ports
from tests.kit import installed, postgres

LEASE_SECONDS = 12.0  # the grace is half of it: a busy machine may need seconds for what takes a moment


@pytest.fixture
def replicated() -> Iterator[postgres.Replicated]:
    installed.demand([] if os.geteuid() == 0 else ["root, to run two servers for one account"])
    with postgres.replicated(HERE, two_ports(), "") as both:
        both.run(f"create database {NAME}")
        migrate(both.url(NAME))
        yield both


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, 15.0], ids=["shorter than a lease", "longer than a lease"])
async def test_no_family_ends_whose_token_a_living_host_has_when_the_database_comes_back(
    postgres_server: postgres.Server, tmp_path: Path, seconds: float
) -> None:
    postgres_server.new_database(NAME)
    database = Restarted(postgres_server)
    report = await outage(database, NAME, tmp_path, seconds=seconds, lease_seconds=LEASE_SECONDS)
    assert [] == report.problems


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 15.0], ids=["shorter than a lease", "longer than a lease"])
async def test_no_family_ends_whose_token_a_living_host_has_when_a_standby_takes_over_that_has_fallen_behind(
    replicated: postgres.Replicated, tmp_path: Path, seconds: float
) -> None:
    database = FailedOver(replicated)
    report = await outage(database, NAME, tmp_path, seconds=seconds, lease_seconds=LEASE_SECONDS)
    assert [] == report.problems
