"""`--app` takes an OAuthApp's bare name and `OAuthApp/name`, in every command that has it."""

from __future__ import annotations

import json

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Desk

COMMANDS = {
    "grants list": ("grants", "list", "--json"),
    "grants revoke": ("grants", "revoke", "--all", "--dry-run", "--json"),
    "grants import": ("grants", "import", "-", "--dry-run", "--json"),
    "sessions list": ("sessions", "list", "--json"),
    "audit tail": ("audit", "tail", "--json"),
}
LINE = {"app": "mail", "subject": "idp:user:U9", "refreshToken": "r-1"}


@pytest.fixture
def connected(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return desk


def test_what_a_removed_app_has_left_is_listed_and_ended_under_every_filter(connected: Desk, idp: IdentityProvider):
    (connected.folder / "config" / "mail.yaml").unlink()
    alice = ("--subject", "idp:user:U234567")
    for name in ("grants list", "sessions list", "audit tail"):
        every, none = COMMANDS[name], ("--type", "TokenRejected") if name == "audit tail" else ("--subject", "team")
        done = connected.type(*every, "--app", "mail")
        assert (0, 0) == (done.code, connected.type(*every, "--app", "mail", *none).code), (name, done)
        assert json.loads(done.out), name
        assert 2 == connected.type(*every, "--app", "mial").code, name
    assert 1 == len(json.loads(connected.type("grants", "list", "--json", "--app", "mail", *alice).out))
    done = connected.type("grants", "revoke", "--app", "mail", "--yes", *alice)
    assert (3, True) == (done.code, "ended here; the provider did not answer" in done.out), "no app, so it is not told"


def test_every_command_takes_both_forms_of_an_app_and_refuses_what_names_none(connected: Desk):
    """An empty word, such as a shell's variable that is not set, never means every app."""
    for name, words in COMMANDS.items():
        bare, written = (
            connected.type(*words, "--app", app, stdin=json.dumps(LINE)) for app in ("mail", "OAuthApp/mail")
        )
        assert (0, bare) == (written.code, written), name
        assert json.loads(bare.out), name
        for app in ("Tool/mail", "OAuthApp/", ""):
            refused = connected.type(*words, "--app", app, stdin=json.dumps(LINE))
            assert (2, True) == (refused.code, "OAuthApp/name" in refused.err), (name, app)
