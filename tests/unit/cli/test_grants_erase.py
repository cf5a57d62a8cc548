"""`oauthbroker grants erase`: the records that a question makes old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oauthbroker.cli.grants import grants_erase
from oauthbroker.grants.found_records import Erased, FoundRecords


@pytest.mark.parametrize("yes", [True, False])
def test_after_a_question_the_grants_of_others_are_read_again(monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> None:
    found, seen = FoundRecords(subject="idp:user:U1", uses=["sha256:1"]), list[Any]()

    async def look(*_: Any) -> FoundRecords:
        return found

    async def erase(*arguments: Any) -> Erased:
        seen.append(arguments[-1])
        return Erased(True, found)

    monkeypatch.setattr(grants_erase, "_look", look)
    monkeypatch.setattr(grants_erase, "_erase", erase)
    monkeypatch.setattr(grants_erase, "confirm", lambda *_, **__: None)
    assert 0 == grants_erase.run(Path("config"), found.subject, 0, dry_run=False, yes=yes, as_json=True)
    assert [found if yes else None] == seen
