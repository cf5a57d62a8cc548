"""What `keys status` says to do next."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from oauthbroker.cli import keys
from oauthbroker.cli.keys import _advice
from oauthbroker.core.refused import Refused


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


def test_a_rotation_without_a_wait_says_that_it_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keys, "_run", lambda *_: False)
    with pytest.raises(typer.Exit) as ended:
        keys.rotate_command(wait=0, config=Path("config"))
    assert 1 == ended.value.exit_code
    assert (
        "Begun: running processes open the new seed within seconds. Run this again to finish."
        in capsys.readouterr().out
    )
    with pytest.raises(Refused, match="has not opened the new seed"):
        keys.rotate_command(wait=1, config=Path("config"))
