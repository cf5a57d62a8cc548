"""What a program loads to start: a heavy import that slips in is a red test with a name."""

from __future__ import annotations

import pytest

from tests.kit.imports import STARTS, complaint, loaded, table


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_only_the_needed_modules(name: str) -> None:
    row = table()[name]
    assert "" == complaint(name, set(row["loads"]), row["modules"])


def test_a_start_that_loads_more_is_named() -> None:
    names, count = loaded(STARTS["the client"])
    assert "loads oauthbroker.core" in complaint("the client", names - {"oauthbroker.core"}, count)
    assert "modules instead of" in complaint("the client", names, count // 2)
    assert "modules instead of" in complaint("the client", names, count * 2)
