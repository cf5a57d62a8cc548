"""`oauthbroker grants`: what people agreed to, told without a token, and ended honestly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.cli_kit import CLIENT_ID, Desk

ALICE, BOB = "idp:user:U234567", "idp:user:U345678"


@pytest.fixture
def connected(desk: Desk, idp: IdentityProvider) -> Desk:
    """Alice and Bob have agreed."""
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    desk.connect("bob", idp)
    return desk


def listed(desk: Desk, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(desk.type("grants", "list", "--json", *words).out)
    return found


def test_the_list_tells_who_agreed_to_what(connected: Desk):
    assert [(BOB, "live", True), (ALICE, "live", True)] == [
        (it["subject"], it["state"], it["refreshable"]) for it in listed(connected)
    ]
    assert [ALICE] == [it["subject"] for it in listed(connected, "--subject", ALICE)]
    assert [] == listed(connected, "--app", "other")
    rows = [line.split() for line in connected.type("grants", "list").out.splitlines()]
    assert ["grant", "app", "subject", "state", "expires", "scopes"] == rows[0]
    assert {(ALICE, "live"), (BOB, "live")} == {(row[2], row[3]) for row in rows[1:]}


def test_the_list_needs_none_of_the_configurations_values(connected: Desk, idp: IdentityProvider):
    """Whoever looks in a hurry may sit in a shell, or before a store, where a client's secret is missing."""
    assert 0 == connected.type("secrets", "remove", "mail", "--yes").code
    assert [BOB, ALICE] == [it["subject"] for it in listed(connected)]
    assert 0 == connected.type("grants", "revoke", "--app", "mail", "--dry-run").code
    refused = connected.type("grants", "revoke", "--app", "mail", "--yes")
    assert (2, True) == (refused.code, "oauthbroker secrets set mail client_secret" in refused.err)
    assert ["live", "live"] == [it["state"] for it in listed(connected)]


def test_one_grant_is_shown_by_the_beginning_of_its_id(connected: Desk):
    grant = listed(connected)[0]
    short = grant["grantId"].removeprefix("sha256:")[:12]
    assert grant == json.loads(connected.type("grants", "show", short, "--json").out)
    plain = connected.type("grants", "show", grant["grantId"]).out
    assert ["subject", grant["subject"]] in [line.split() for line in plain.splitlines()]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "abc"), "at least 6 characters"),
        (("show", "0" * 64), "There is no such grant."),
        (("revoke",), "Say which"),
        (("revoke", "--app", "other", "--yes"), "There is no such grant alive."),
        (("revoke", "--app", "mail"), "say --yes"),
    ],
)
def test_what_is_not_clear_is_refused(connected: Desk, words, says):
    done = connected.type("grants", *words)
    assert 2 == done.code
    assert says in done.err
    assert ["live", "live"] == [it["state"] for it in listed(connected)]


def test_a_dry_run_lists_and_changes_nothing(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--app", "mail", "--dry-run")
    assert 0 == done.code
    assert all(subject in done.out for subject in (ALICE, BOB))
    assert "2 grants would be revoked. Nothing was changed." in done.err
    assert ["live", "live"] == [it["state"] for it in listed(connected)]
    assert 0 == idp.count("revoke")


def test_revoking_one_tells_the_provider_and_leaves_the_other(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes")
    assert (0, f"mail {ALICE}: ended here and at the provider\n") == (done.code, done.out)
    assert {ALICE: "revoked", BOB: "live"} == {it["subject"]: it["state"] for it in listed(connected)}
    assert 0 == idp.living_tokens(CLIENT_ID, "alice")
    assert 1 == idp.living_tokens(CLIENT_ID, "bob")
    assert 2 == connected.type("grants", "revoke", "--subject", ALICE, "--yes").code, "it is gone"


def test_by_its_id_too(connected: Desk):
    short = listed(connected, "--subject", BOB)[0]["grantId"].removeprefix("sha256:")[:10]
    assert 0 == connected.type("grants", "revoke", short, "--yes").code
    assert {ALICE: "live", BOB: "revoked"} == {it["subject"]: it["state"] for it in listed(connected)}


def test_a_whole_app_in_one_command(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--app", "mail", "--yes")
    assert 0 == done.code
    assert 2 == done.out.count("ended here and at the provider")
    assert 0 == idp.living_tokens(CLIENT_ID)


def test_a_provider_that_does_not_answer_is_told_later(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(503, times=FOREVER)
    done = connected.type("grants", "revoke", "--subject", ALICE, "--yes")
    assert 0 == done.code
    assert "ended here; the provider did not answer, a running broker tells it as soon as it does" in done.out
    assert ["revoked"] == [it["state"] for it in listed(connected, "--subject", ALICE)]


def test_a_provider_that_refuses_is_not_passed_off_as_told(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(400, {"error": "invalid_request"}, times=FOREVER)
    done = connected.type("grants", "revoke", "--subject", ALICE, "--yes")
    assert "ended here; the provider refused to revoke it" in done.out


def test_a_provider_that_cannot_be_told_is_named_as_such(connected: Desk, idp: IdentityProvider):
    """No revocation endpoint: the tokens live on over there, and the operator must know."""
    idp.script.discovery.alter(
        lambda document: {name: it for name, it in document.items() if name != "revocation_endpoint"}, times=FOREVER
    )
    done = connected.type("grants", "revoke", "--subject", ALICE, "--yes")
    assert "this provider cannot be told, so its tokens live there until they expire" in done.out
    assert 0 == idp.count("revoke")
    assert 1 == idp.living_tokens(CLIENT_ID, "alice")
