"""`oauthbroker secrets`: values go in by stdin, are sealed, and never come out."""

from __future__ import annotations

import asyncio
import json

import pytest

from oauthbroker import open_broker
from oauthbroker.config import ConfigInvalidError
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import SECRET, Desk
from tests.kit.running_broker import tree


@pytest.fixture
def value(canaries: Canaries) -> str:
    return canaries.mint("client secret").reveal()


@pytest.fixture
def ready(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.serve_app_of(idp)
    assert 0 == desk.type("init").code
    return desk


def complaints(desk: Desk) -> str:
    """What a broker that starts here says of its configuration; nothing when it starts."""

    async def start() -> None:
        async with open_broker(desk.folder / "config", background=False):
            pass

    try:
        asyncio.run(start())
    except ConfigInvalidError as refused:
        return str(refused)
    return ""


def test_a_secret_is_kept_although_the_configuration_still_lacks_it(ready: Desk, value: str):
    assert "oauthbroker secrets set mail client_secret" in complaints(ready)
    done = ready.type("secrets", "set", *SECRET, stdin=value + "\n")
    assert (0, "Kept Secret/mail client_secret.\n", "") == (done.code, done.out, done.err)
    assert not complaints(ready)


@pytest.mark.case("89")
def test_the_value_is_nowhere_in_plain_text(ready: Desk, value: str):
    ready.type("secrets", "set", *SECRET, stdin=value)
    ready.type("secrets", "list")
    assert value.encode() not in b"".join(tree(ready.folder).values())


def test_the_list_names_set_missing_and_unused_secrets(ready: Desk, value: str):
    def states() -> dict[str, str]:
        rows = json.loads(ready.type("secrets", "list", "--json").out)
        return {f"{row['name']} {row['key']}": row["state"] for row in rows}

    assert {"mail client_secret": "missing"} == states()
    ready.type("secrets", "set", *SECRET, stdin=value)
    done = ready.type("secrets", "set", "Secret/other", "token", stdin=value)
    assert (
        "warning: nothing in config reads Secret/other token. `oauthbroker secrets remove other token` removes it.\n"
        == done.err
    )
    assert {"mail client_secret": "set", "other token": "set, not used"} == states()
    lines = [line.split() for line in ready.type("secrets", "list").out.splitlines()]
    assert ["Secret/mail", "client_secret", "set"] in lines


def test_removing_asks_for_a_yes_and_names_missing_secrets(ready: Desk, value: str):
    ready.type("secrets", "set", *SECRET, stdin=value)
    done = ready.type("secrets", "remove", *SECRET)
    assert 2 == done.code
    assert "say --yes" in done.err
    assert "set" in ready.type("secrets", "list").out
    assert "Removed Secret/mail client_secret.\n" == ready.type("secrets", "remove", *SECRET, "--yes").out
    assert "missing" in ready.type("secrets", "list").out
    done = ready.type("secrets", "remove", "mail", "--yes")
    assert (2, "There is no secret mail.") == (done.code, done.err[:24])


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (SECRET, b"", "The secret is empty."),
        (SECRET, b" \n", "The secret is empty."),
        (SECRET, b"x" * 65_537, "longer than 64 KiB"),
        (SECRET, b"\xff\xfe", "not text in UTF-8"),
        (("../mail", "client_secret"), b"x", "made of letters"),
        (("mail", ""), b"x", "made of letters"),
        (("mail", "a/b"), b"x", "made of letters"),
    ],
)
def test_what_cannot_be_a_secret_is_refused_and_nothing_changes(ready: Desk, words, stdin, says):
    before = tree(ready.folder)
    done = ready.type("secrets", "set", *words, stdin=stdin)
    assert (2, "") == (done.code, done.out)
    assert says in done.err
    assert before == tree(ready.folder)


@pytest.mark.case("92")
@pytest.mark.parametrize("form", [("{}",), ("--value={}",), ("--value", "{}"), ("--", "{}"), ("a", "{}")])
def test_a_value_on_the_command_line_is_refused_and_not_repeated(ready: Desk, value: str, form: tuple[str, ...]):
    """Other users could read it there, and so could readers of the terminal's log."""
    done = ready.type("secrets", "set", *SECRET, *(word.format(value) for word in form))
    assert 2 == done.code
    assert value not in done.err
    assert "missing" in ready.type("secrets", "list").out


def test_a_key_of_several_lines_keeps_its_lines(ready: Desk):
    lines = "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"
    assert 0 == ready.type("secrets", "set", *SECRET, stdin=lines).code
    assert "line break" in complaints(ready), "a client secret with a line break is none"


def test_a_check_ends_with_the_secrets_that_are_not_set_here(desk: Desk, idp: IdentityProvider, value: str):
    def lacks() -> tuple[list[str], list[str]]:
        reported = json.loads(desk.type("check", "--json").out)
        return reported["notSet"], reported["notKnown"]

    desk.serve_app_of(idp)
    assert (["Secret/mail client_secret"], []) == lacks(), "no store yet"
    desk.type("init")
    assert (["Secret/mail client_secret"], []) == lacks(), "a keyring and nothing else"
    before = tree(desk.folder)
    assert "\nNot set here:\n  Secret/mail client_secret  (" in desk.type("check").err
    assert before == tree(desk.folder)
    desk.type("secrets", "set", *SECRET, stdin=value)
    assert ([], []) == lacks()
    assert not desk.type("check").err.count("Secret/mail")
    desk.key_file.chmod(0o644)
    assert ([], ["Secret/mail client_secret"]) == lacks(), "nothing is called missing without the key"
    assert "Not known, because the store cannot be opened here:" in desk.type("check").err
