"""Commands at a terminal: a secret is typed unseen and twice, and what cannot be undone is asked for."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import MAIN, SECRET, Desk, environment

pytestmark = pytest.mark.slow


class Terminal:
    """A pseudo-terminal with one command in it."""

    def __init__(self, desk: Desk, *words: str, **env: str) -> None:
        self._desk = desk
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *words], cwd=desk.folder, env=environment(**{"TERM": "dumb", **env}),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.screen = ""

    def until(self, text: str) -> None:
        """Reads the screen until it shows this."""
        deadline = time.monotonic() + 60
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            assert self._read(0.2) is not False, self.screen

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode() + b"\n")

    def end(self) -> int:
        while self._read(0.2) is not False:
            pass
        self._desk.canaries.look(self.screen, "the terminal")
        return self._process.wait(60)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self, seconds: float) -> bool | None:
        """True for something, None for nothing yet, False when the command has left the terminal."""
        ready = select.poll()  # `select.select` knows no descriptor above 1023
        ready.register(self._ours, select.POLLIN)
        if not ready.poll(seconds * 1000):
            return None
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            data = b""
        self.screen += data.decode()
        return bool(data)


@contextmanager
def at_terminal(desk: Desk, *words: str, **env: str) -> Iterator[Terminal]:
    terminal = Terminal(desk, *words, **env)
    try:
        yield terminal
    finally:
        terminal.close()


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
