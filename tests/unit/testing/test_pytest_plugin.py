"""The sweep that is on for every test: run in a child pytest, as our users run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.testing.child_pytest import names_with_outcome, run_pytest

pytestmark = pytest.mark.slow
SUITE = """
import logging, sys
import pytest
from oauthbroker.testing import Browser, Canaries, IdentityProvider

def test_clean(canaries, identity_provider):
    canaries.mint("token")
    print("nothing to see")

def test_leaks_by_log(canaries):
    logging.getLogger("deep").log(1, "%s", canaries.mint("token").reveal())

def test_leaks_by_stdout(canaries):
    print(canaries.mint("token").reveal())

def test_leaks_by_stderr(canaries):
    print(canaries.mint("token").reveal(), file=sys.stderr)

def test_leaks_through_capsys(canaries, capsys):
    print(canaries.mint("token").reveal())
    assert capsys.readouterr().out

def test_leaks_through_capfd(canaries, capfd):
    print(canaries.mint("token").reveal(), file=sys.stderr)
    assert capfd.readouterr().err

def test_leaks_into_a_file(canaries, tmp_path):
    (tmp_path / "record").write_text(canaries.mint("token").reveal())

def test_leaks_in_an_answer(browser):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": browser.canaries.mint("token").reveal().encode()})
    import asyncio
    browser.serve("https://broker.test", app)
    asyncio.run(browser.open("https://broker.test/"))

def test_leaks_what_was_looked_at(canaries):
    canaries.look({"event": canaries.mint("token").reveal()}, "event")

def test_leaks_from_a_provider_of_its_own():
    with IdentityProvider() as idp:
        logging.getLogger("x").info(Canaries.active().mint("token").reveal())

def test_leaks_and_fails(canaries):
    print(canaries.mint("token").reveal())
    assert 1 == 2

def test_may_show(canaries):
    canaries.may_show("ticket")
    print(canaries.mint("ticket").reveal())

def test_may_show_through_capsys(canaries, capsys):
    print(canaries.mint("ticket").reveal())
    capsys.readouterr()
    canaries.may_show("ticket")

@pytest.mark.secrets_may_leak("on purpose")
def test_on_purpose(canaries):
    print(canaries.mint("token").reveal())

def test_clock_is_shared(identity_provider, test_clock):
    assert identity_provider.clock is test_clock
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_pytest(tmp_path_factory.mktemp("suite"), SUITE)


@pytest.mark.case("89")
def test_every_leak_fails_its_test_and_nothing_else_does(outcome: str):
    leaking = set(re.findall(r"def (test_leaks_\w+)", SUITE))
    clean = set(re.findall(r"def (test_\w+)", SUITE)) - leaking
    assert leaking == names_with_outcome("ERROR", outcome)
    assert not clean & (names_with_outcome("ERROR", outcome) | names_with_outcome("FAILED", outcome))
    assert clean <= names_with_outcome("PASSED", outcome)


def test_a_failure_says_where_and_not_what(outcome: str):
    teardowns = outcome.partition("= ERRORS =")[2].partition("= FAILURES =")[0]
    for where in ("log deep Level 1", "stdout", "stderr", "file record", "answer 1 of a browser", "event"):
        assert f"  - token (plain) in {where}" in teardowns
    assert "cnry" not in teardowns


def test_a_test_that_fails_by_itself_still_reports_its_leak(outcome: str):
    assert "test_leaks_and_fails" in names_with_outcome("FAILED", outcome) & names_with_outcome("ERROR", outcome)


def test_the_sweep_can_be_switched_off(tmp_path: Path):
    off = run_pytest(tmp_path, SUITE, "-o", "secret_sweep=false", "-k", "leaks and not fails")
    assert not names_with_outcome("ERROR", off)
    assert names_with_outcome("PASSED", off) == set(re.findall(r"def (test_leaks_\w+)", SUITE)) - {
        "test_leaks_and_fails"
    }
