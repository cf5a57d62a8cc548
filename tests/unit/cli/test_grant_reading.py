"""Commands read the grants of a store one by one: of a million, only those are in memory that are shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from oauthbroker.cli.grants import reading
from oauthbroker.cli.grants.reading import GrantReader
from oauthbroker.core.refused import Refused

COUNT = 5_000
START = datetime(2026, 1, 1, tzinfo=UTC)


class Summary:
    def __init__(self, number: int) -> None:
        self.grantId = id_of(number)
        self.created_at = START + timedelta(minutes=number * 7919 % COUNT)  # in no order
        self.unended = number % 2 == 0


def id_of(number: int) -> str:
    return f"sha256:{sha256(str(number).encode()).hexdigest()}"


class Grants:
    def __init__(self) -> None:
        self.alive, self.most, self.read = WeakSet[Summary](), 0, 0

    async def count(self) -> int:
        return COUNT

    async def list(self, *, app: str | None, subject: str | None) -> AsyncIterator[Summary]:
        assert app is None
        for number in range(0 if subject is None else COUNT - 1, COUNT):
            grant = Summary(number)
            self.alive.add(grant)
            self.most, self.read = max(self.most, len(self.alive)), self.read + 1
            yield grant


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> Grants:
    found = Grants()
    monkeypatch.setattr(reading, "in_vault", lambda _, work: asyncio.run(work(SimpleNamespace(grants=found))))
    return found


def reader(subject: str | None = None) -> Any:
    return GrantReader(Path("config"), None, subject, as_json=True)


def test_the_newest_grants_are_the_newest_of_all_and_the_others_are_not_kept(grants: Grants) -> None:
    found, count = reader().newest(30)
    expected = sorted(map(Summary, range(COUNT)), key=lambda it: it.created_at, reverse=True)[:30]
    assert ([it.grantId for it in expected], COUNT) == ([it.grantId for it in found], count)
    assert grants.most <= 1_001
    del found, expected
    assert COUNT == len(reader().newest(COUNT)[0])


def test_a_whole_id_ends_the_search_and_a_beginning_is_looked_for_in_all(grants: Grants) -> None:
    assert id_of(70) == reader().one(id_of(70)).grantId
    assert 71 == grants.read
    assert id_of(70) == reader().one(id_of(70).removeprefix("sha256:")[:12]).grantId
    assert 71 + COUNT == grants.read
    assert grants.most <= 3
    with pytest.raises(Refused, match="at least 6"):
        reader().one("sha256:70")
    assert 71 + COUNT == grants.read, "nothing was read for a text that is no id"
    with pytest.raises(Refused, match="no grant"):
        reader().one(id_of(71), lambda grant: grant.unended)


def test_the_grants_of_a_subject_that_can_still_be_revoked_are_all_found(grants: Grants) -> None:
    assert COUNT / 2 == len(reader().unended())
    assert [] == reader("idp:user:1").unended()
    assert COUNT + 1 == grants.read
