"""What `keys status` says to do next."""

from __future__ import annotations

import pytest

from oauthbroker.cli.keys import _advice


@pytest.mark.parametrize("behind", [1, 2])
def test_processes_that_are_behind_are_counted(behind: int) -> None:
    assert f"Processes that have not opened this keyring yet: {behind}." == _advice({"processesBehind": behind})
