"""Commands at a terminal: a secret is typed unseen and twice, and what cannot be undone is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit import terminal as terminals
from tests.kit.cli import MAIN, SECRET, Desk, environment
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.slow


@contextmanager
def at_terminal(desk: Desk, *words: str, **env: str) -> Iterator[Terminal]:
    """A terminal in the desk's folder. Its screen is swept for secrets."""
    command = [sys.executable, "-c", MAIN, *words]
    with terminals.at_terminal(command, desk.folder, environment(**{"TERM": "dumb", **env})) as opened:
        yield opened
    desk.canaries.look(opened.screen, "the terminal")


@pytest.mark.case("92")
def test_a_secret_is_typed_twice_and_never_seen(desk: Desk, idp: IdentityProvider):
    secret = desk.serve_app_of(idp)
    desk.type("init")
    with at_terminal(desk, "secrets", "set", *SECRET) as terminal:
        terminal.until("Secret/mail client_secret: ")  # the space comes once the echo is off
        terminal.type(secret)
        terminal.until("confirmation: ")
        terminal.type(secret)
        assert 0 == terminal.end(), terminal.screen
    assert secret not in terminal.screen
    assert "Kept Secret/mail client_secret." in terminal.screen
    assert 0 == desk.type("grants", "list").code


@pytest.mark.parametrize("no_color", [True, False])
def test_a_table_is_drawn_within_the_width_and_in_colour_where_that_is_wanted(
    desk: Desk, idp: IdentityProvider, no_color: bool
):
    """Nothing is cut: a text too long for its column is wrapped. In a pipe the same list is plain."""
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    more = {"TERM": "xterm-256color", "COLUMNS": "80"} | ({} if no_color else {"NO_COLOR": ""})
    with at_terminal(desk, "grants", "list", **more) as terminal:
        assert 0 == terminal.end(), terminal.screen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen)
    assert all(len(line) <= 80 for line in plain.splitlines())
    assert "idp:user:U234567" in plain
    assert "─" in plain
    assert ("\x1b[32m" in terminal.screen) is not no_color, "the state is green"
    assert "─" not in desk.type("grants", "list").out


@pytest.mark.parametrize(("answer", "code", "state"), [("n", 2, "live"), ("y", 0, "revoked")])
def test_revoking_asks_first(desk: Desk, idp: IdentityProvider, answer: str, code: int, state: str):
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    with at_terminal(desk, "grants", "revoke", "--app", "mail") as terminal:
        terminal.until("Revoke 1 grant? [y/N]")
        terminal.type(answer)
        assert code == terminal.end(), terminal.screen
    assert f" {state} " in desk.type("grants", "list").out
