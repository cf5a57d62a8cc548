"""Commands read the grants of a store one by one: of a million, only those are in memory that are shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakSet

import pytest

from oauthbroker.cli.grants import reading
from oauthbroker.cli.grants.reading import GrantReader
from oauthbroker.cli.stored_records import Listing
from oauthbroker.core.refused import Refused
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records.grant_head import GrantHead

COUNT = 5_000
START = datetime(2026, 1, 1, tzinfo=UTC)
GONE = f"idp:user:{COUNT - 2}"


def head(number: int) -> GrantHead:
    """Return one of the grants, which are in no order; each second one ended."""
    made = START + timedelta(minutes=number * 7919 % COUNT)
    return GrantHead(made, GrantKey("mail", f"idp:user:{number}"), made, number % 2 == 1, revocation_pending=False)


def id_of(number: int) -> str:
    return head(number).id


class Moment(datetime):
    """A time that can be counted."""


class Grants:
    def __init__(self) -> None:
        self.alive, self.most, self.read = WeakSet[Any](), 0, 0
        self.shown = list[int]()

    async def count(self) -> int:
        return COUNT

    async def heads(self, *, app: str | None, subject: str | None) -> AsyncIterator[GrantHead]:
        assert app is None
        for number in range(0 if subject is None else COUNT - 1, COUNT):
            moment = Moment.fromtimestamp(head(number).created_at.timestamp(), UTC)
            made = head(number)._replace(created_at=moment)
            self.alive.add(moment)
            self.most, self.read = max(self.most, len(self.alive)), self.read + 1
            yield made

    async def summary(self, key: GrantKey) -> Any:
        self.shown.append(self.read)
        return None if key.subject == GONE else SimpleNamespace(grantId=key.id)


LISTING = Listing[Any](("grant",), lambda it: (it.grantId,), lambda it: it.grantId, none="There are none.")


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> Grants:
    found = Grants()
    opened = asynccontextmanager(partial(vault, found))
    monkeypatch.setattr(reading, "vault_of", lambda _: opened())
    return found


async def vault(grants: Grants) -> AsyncIterator[Any]:
    yield SimpleNamespace(grants=grants)


def reader(subject: str | None = None) -> Any:
    return GrantReader(Path("config"), None, subject, as_json=True)


def newest(most: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    reader().print_newest(most, LISTING)
    return cast("list[str]", json.loads(capsys.readouterr().out))


def test_the_newest_grants_are_the_newest_of_all_and_the_others_are_not_kept(
    grants: Grants, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [it.id for it in sorted(map(head, range(COUNT)), reverse=True) if it.key.subject != GONE]
    assert expected[:30] == newest(30, capsys)
    assert grants.most <= 1_001
    assert expected == newest(COUNT, capsys), "one that was removed meanwhile is left out"


def test_a_whole_id_ends_the_search_and_a_beginning_is_looked_for_in_all(grants: Grants) -> None:
    assert id_of(70) == reader().one(id_of(70)).grantId
    assert 71 == grants.read
    assert id_of(70) == reader().one(id_of(70).removeprefix("sha256:")[:12]).grantId
    assert 71 + COUNT == grants.read
    assert grants.most <= 3
    with pytest.raises(Refused, match="70 is too short for the beginning of a grant's id: type at least 6"):
        reader().one("sha256:70")
    assert 71 + COUNT == grants.read, "nothing was read for a text that is no id"
    gone = reader().unended(id_of(71))
    assert ([], head(71).id) == (gone.keys, gone.gone.id), "one that has ended is named, and not ended again"


def test_a_grant_that_is_removed_while_it_is_looked_for_is_refused_in_words(grants: Grants) -> None:
    with pytest.raises(Refused, match="There is no such grant any more"):
        reader().one(GrantKey("mail", GONE).id)


def test_the_grants_of_a_subject_that_can_still_be_revoked_are_all_chosen(grants: Grants) -> None:
    chosen = reader().unended(None)
    assert (COUNT / 2, {"mail": COUNT / 2}, set()) == (len(chosen.keys), chosen.apps, chosen.ended)
    assert [head(70).key] == reader().unended(id_of(70)).keys
    before = grants.read
    assert [] == reader("idp:user:1").unended(None).keys
    assert before + 1 == grants.read, "only what the subject has"
