"""`oauthbroker grants import` with several accounts of one subject: each line is a grant of its own, in every answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oauthbroker.model.grant_key import grant_id
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Desk

ALICE = "idp:user:U234567"
ACCOUNTS = ["work", "private", ""]


def lines_of(*accounts: str) -> str:
    lines = [
        {"app": "mail", "subject": ALICE, "refreshToken": f"token-of-{name}-0123456789"}
        | ({"connection": name} if name else {})
        for name in accounts
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def several(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    file = desk.folder / "config" / "mail.yaml"
    app = file.read_text().replace("  owner: {", "  accounts: several\n  owner: {binding: localOperator, ")
    file.write_text(app)
    return desk


def imported(desk: Desk, lines: str, *words: str) -> list[dict[str, Any]]:
    done = desk.type("grants", "import", "-", "--json", *words, stdin=lines)
    assert 0 == done.code, done.err
    found: list[dict[str, Any]] = json.loads(done.out)["grants"]
    return found


def listed(desk: Desk, *words: str) -> dict[str, str]:
    done = desk.type("grants", "list", "--json", *words)
    assert 0 == done.code, done.err
    said = json.loads(done.out)
    return {each.get("account", ""): each["grantId"] for each in (said if isinstance(said, list) else said["grants"])}


def test_each_line_says_which_connection_became_which_grant(several: Desk):
    lines = imported(several, lines_of(*ACCOUNTS))
    assert ["imported"] * 3 == [each["outcome"] for each in lines]
    wanted = {name: grant_id("mail", ALICE, name) for name in ACCOUNTS}
    assert wanted == {each.get("connection", ""): each["grantId"] for each in lines} == listed(several)


def test_a_dry_run_looks_at_the_connection_of_the_line(several: Desk):
    imported(several, lines_of("work"))
    outcomes = [each["outcome"] for each in imported(several, lines_of(*ACCOUNTS), "--dry-run")]
    assert ["kept", "imported", "imported"] == outcomes


def test_a_refused_line_names_its_connection(several: Desk):
    imported(several, lines_of(*ACCOUNTS))
    done = several.type("grants", "import", "-", "--verify", stdin=lines_of(*ACCOUNTS))
    named = [text.partition(": ")[2].partition(": ")[0] for text in done.err.splitlines() if text.startswith("line ")]
    assert [f"mail {ALICE} work", f"mail {ALICE} private", f"mail {ALICE}"] == named


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_end_of_one_connection_leaves_the_others(several: Desk, account: str):
    imported(several, lines_of(*ACCOUNTS))
    done = several.type("grants", "revoke", "--app", f"mail@{account}", "--subject", ALICE, "--yes")
    assert 0 == done.code, done.err
    live = [name for name in ACCOUNTS if listed(several, "--app", f"mail@{name}") and name != account]
    shown = json.loads(several.type("grants", "list", "--json").out)
    rows = shown if isinstance(shown, list) else shown["grants"]
    assert sorted(live) == sorted(each.get("account", "") for each in rows if each["state"] == "live")
