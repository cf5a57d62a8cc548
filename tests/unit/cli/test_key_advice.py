"""What `keys status` says to do next."""

from __future__ import annotations

import pytest

from oauthbroker.cli.keys import _advice


@pytest.mark.parametrize(
    ("behind", "state", "advice"),
    [
        (1, "next", "Processes that have not opened the new seed yet: 1. It seals once they have."),
        (2, "next", "Processes that have not opened the new seed yet: 2. It seals once they have."),
        (2, "active", "Nothing to do."),  # they open the keyring before their next write
        (2, "decryptOnly", "`oauthbroker keys retire` destroys the old seeds."),
    ],
)
def test_processes_that_are_behind_are_counted_while_the_new_seed_waits_for_them(
    behind: int, state: str, advice: str
) -> None:
    assert advice == _advice({"processesBehind": behind, "seeds": [{"state": state, "records": 0}]})
