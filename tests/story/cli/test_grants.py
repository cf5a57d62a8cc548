"""`oauthbroker grants`: what people agreed to, told without a token, and ended honestly."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.cli import APP, CLIENT_ID, MAIN, START_SECONDS, Desk, command, environment

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
    assert 2 == connected.type("grants", "list", "--app", "other").code, "an app that is not configured"
    rows = [line.split() for line in connected.type("grants", "list").out.splitlines()]
    assert ["grant", "app", "subject", "state", "expires", "scopes"] == rows[0]
    assert {(ALICE, "live"), (BOB, "live")} == {(row[2], row[3]) for row in rows[1:]}


def test_a_list_of_an_unknown_app_is_refused_and_not_shown_as_empty(connected: Desk):
    in_json, plain = (connected.type("grants", "list", "--app", "other", *words) for words in (("--json",), ()))
    assert (2, "refused") == (in_json.code, json.loads(in_json.out)["error"]["code"])
    assert (2, "There is no app other. Known: mail. Nothing was changed.\n") == (plain.code, plain.err)


def test_the_list_needs_none_of_the_configurations_values(connected: Desk, idp: IdentityProvider):
    """An operator in a hurry may use a shell or a store where a client's secret is missing."""
    assert 0 == connected.type("secrets", "remove", "mail", "--yes").code
    assert [BOB, ALICE] == [it["subject"] for it in listed(connected)]
    assert 0 == connected.type("grants", "revoke", "--app", "mail", "--dry-run").code
    refused = connected.type("grants", "revoke", "--all", "--app", "mail", "--yes")
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
        (("show", "0" * 64), "There is no grant 000"),
        (("revoke",), "Say which"),
        (("revoke", "--app", "other", "--yes"), "There is no app other. Known: mail."),
        (("revoke", "--app", "other", "--dry-run"), "There is no app other. Known: mail."),
        (("revoke", "0" * 64, "--all", "--yes"), "There is no grant 000"),
        (("revoke", "--app", "mail", "--yes"), "That names 2 grants. Name one as NAME@ACCOUNT"),
        (("revoke", "--all", "--app", "mail"), "say --yes"),
    ],
)
def test_an_ambiguous_request_is_refused(connected: Desk, words, says):
    done = connected.type("grants", *words)
    assert 2 == done.code
    assert says in done.err
    assert ["live", "live"] == [it["state"] for it in listed(connected)]


def test_a_dry_run_lists_and_changes_nothing(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--app", "mail", "--dry-run")
    assert 0 == done.code
    assert all(subject in done.out for subject in (ALICE, BOB))
    assert "2 grants: 2 of mail. They would be revoked. Nothing was changed." in done.err
    assert listed(connected) == json.loads(connected.type("grants", "revoke", "--all", "--dry-run", "--json").out)
    assert ["live", "live"] == [it["state"] for it in listed(connected)]
    assert 0 == idp.count("revoke")


def test_revoking_one_tells_the_provider_and_leaves_the_other(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes")
    assert (0, f"mail {ALICE}: ended here and at the provider\n") == (done.code, done.out)
    assert {ALICE: "revoked", BOB: "live"} == {it["subject"]: it["state"] for it in listed(connected)}
    assert 0 == idp.living_tokens(CLIENT_ID, "alice")
    assert 1 == idp.living_tokens(CLIENT_ID, "bob")
    assert 2 == connected.type("grants", "revoke", "--subject", ALICE, "--yes").code, "it is gone"


def test_a_command_for_people_prints_no_lines_for_machines(connected: Desk):
    """Checks that are off are said by a broker that serves."""
    done = connected.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes")
    assert [] == [line for line in (done.err + done.out).splitlines() if line.startswith("{")]


async def test_a_runtime_that_waits_hears_of_it_before_any_sweep(connected: Desk):
    """The command queues the event itself, because this runtime has no relay. It may take long to start on a busy
    machine, so the runtime waits as long as the command may."""
    async with open_broker("config", env={}, background=False) as runtime:
        while (event := await runtime.events.lease("planner")) is not None:
            await event.ack()
        waiting = asyncio.create_task(runtime.events.lease("planner", wait=2 * START_SECONDS))
        words = ("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes")
        done = await asyncio.to_thread(command, *words, cwd=connected.folder)
        assert 0 == done.code, done.err
        heard = await waiting
    assert heard is not None
    assert "auth.revoked" == heard.type


def test_by_its_id_too(connected: Desk):
    short = listed(connected, "--subject", BOB)[0]["grantId"].removeprefix("sha256:")[:10]
    assert 0 == connected.type("grants", "revoke", short, "--yes").code
    assert {ALICE: "live", BOB: "revoked"} == {it["subject"]: it["state"] for it in listed(connected)}
    again = connected.type("grants", "revoke", short, "--yes")
    assert (0, "") == (again.code, again.out)
    assert f"mail {BOB}: has already ended; its last change was at 20" in again.err
    assert 0 == json.loads(connected.type("grants", "revoke", short, "--yes", "--json").out)["chosen"]


def figures(out: str) -> dict[str, int]:
    rows = [line.rsplit(maxsplit=1) for line in out.splitlines()]
    return {name.strip(): int(count) for name, count in rows}


@pytest.mark.parametrize("words", [("--app", "mail"), ()], ids=["an app", "the whole store"])
def test_many_in_one_command(connected: Desk, idp: IdentityProvider, words):
    done = connected.type("grants", "revoke", "--all", *words, "--yes")
    again = connected.type("grants", "revoke", "--all", *words, "--yes")
    assert (0, 0, "") == (done.code, again.code, again.out)
    assert "2 grants: 2 of mail." in done.err
    said = figures(done.out)
    assert (2, 2, 0) == (said["ended here"], said["the provider knows"], said["left to tell"])
    assert 0 == idp.living_tokens(CLIENT_ID)


def test_revoking_a_subject_ends_its_grants_of_all_apps_and_no_others(connected: Desk, idp: IdentityProvider):
    done = connected.type("grants", "revoke", "--all", "--subject", ALICE, "--yes")
    assert (0, f"mail {ALICE}: ended here and at the provider\n") == (done.code, done.out)
    assert 1 == idp.living_tokens(CLIENT_ID, "bob")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--subject", "idp:user:U0"), "of subject idp:user:U0 "),
        (("--subject", "idp:user:U0", "--dry-run"), "of subject idp:user:U0 "),
    ],
)
def test_all_of_nothing_is_done_already_and_no_refusal(connected: Desk, words: tuple[str, ...], named: str):
    """A script that offboards a user succeeds if nothing is left, and gets status 0 each time."""
    done = connected.type("grants", "revoke", "--all", *words)
    assert (0, "") == (done.code, done.out)
    assert done.err == f"No grant {named}is left to end. Nothing was changed.\n"
    assert ["live", "live"] == [it["state"] for it in listed(connected)]


def test_all_of_nothing_in_json_has_the_form_of_something(connected: Desk):
    words = ("grants", "revoke", "--all", "--subject", "idp:user:U0", "--json")
    said = json.loads(connected.type(*words, "--yes").out)
    assert ({"chosen": 0, "ended": 0, "failed": 0}, []) == (
        {name: said[name] for name in ("chosen", "ended", "failed")}, said["grants"],
    )  # fmt: skip
    assert {0} == {*said["provider"].values()}
    assert [] == json.loads(connected.type(*words, "--dry-run").out)
    everybody = json.loads(connected.type("grants", "revoke", "--all", "--yes", "--json").out)
    assert said.keys() == everybody.keys()
    assert said["provider"].keys() == everybody["provider"].keys()


def test_what_became_of_each_in_json(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(400, {"error": "invalid_request"})
    done = connected.type("grants", "revoke", "--all", "--app", "mail", "--wait", "0", "--yes", "--json")
    said = json.loads(done.out)
    assert (3, 2, 2, 0) == (done.code, said["chosen"], said["ended"], said["failed"])
    assert {"done": 1, "none": 0, "shared": 0, "refused": 1, "later": 0} == said["provider"]
    assert {"done", "refused"} == {grant["provider"] for grant in said["grants"]}
    assert {ALICE, BOB} == {grant["subject"] for grant in said["grants"]}


def test_all_are_unusable_at_once_however_long_the_provider_makes_us_wait(connected: Desk, idp: IdentityProvider):
    """429 for an hour: the provider is asked once, every grant has ended, and the next run continues."""
    idp.script.revoke.answer(429, {}, {"retry-after": "3600"})
    done = connected.type("grants", "revoke", "--all", "--app", "mail", "--yes")
    said = figures(done.out)
    assert (3, 2, 0, 2) == (done.code, said["ended here"], said["the provider knows"], said["left to tell"])
    assert "or type this again" in done.err
    assert ["revoked", "revoked"] == [it["state"] for it in listed(connected)]
    assert 1 == idp.count("revoke")
    again = connected.type("grants", "revoke", "--all", "--app", "mail", "--yes")
    assert "2 grants ended before; the provider has still to be told." in again.err
    said = figures(again.out)
    assert (0, 0, 2, 0) == (again.code, said["ended here"], said["the provider knows"], said["left to tell"])
    assert 0 == idp.living_tokens(CLIENT_ID)


@pytest.mark.slow
def test_a_provider_that_asks_for_a_second_gets_it(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(429, {}, {"retry-after": "1"}, times=2)
    done = connected.type("grants", "revoke", "--all", "--app", "mail", "--yes")
    assert (0, 2) == (done.code, figures(done.out)["the provider knows"])
    assert 0 == idp.living_tokens(CLIENT_ID)


def test_only_the_values_of_the_apps_in_question_are_needed(connected: Desk, idp: IdentityProvider):
    """An operator who must end one app's grants in a hurry may lack another app's secret."""
    other = APP.format(issuer=idp.issuer).replace("name: mail", "name: other")
    connected.write(
        "other", other.replace("{secretRef: {ref: Secret/mail, key: client_secret}}", "{env: NOT_SET_HERE}")
    )
    assert 2 == connected.type("serve").code
    assert 0 == connected.type("grants", "revoke", "--all", "--app", "mail", "--yes").code
    assert 0 == idp.living_tokens(CLIENT_ID)


@pytest.mark.slow
def test_ctrl_c_leaves_tombstones_and_says_how_far_it_came(connected: Desk, idp: IdentityProvider):
    hold = idp.script.revoke.hang()
    words = ["grants", "revoke", "--all", "--app", "mail", "--yes"]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], cwd=connected.folder, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        asyncio.run(idp.wait_for("revoke", timeout=30))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        hold.release()
    said = figures(out)
    assert (130, 2, 0, 2) == (process.returncode, said["ended here"], said["the provider knows"], said["left to tell"])
    assert ["revoked", "revoked"] == [it["state"] for it in listed(connected)]
    assert 0 == connected.type(*words).code
    assert 0 == idp.living_tokens(CLIENT_ID)


def test_a_provider_that_does_not_answer_is_told_later(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(503, times=FOREVER)
    done = connected.type("grants", "revoke", "--subject", ALICE, "--yes")
    assert 3 == done.code
    assert "ended here; the provider did not answer, or this configuration lacks the client of the grant" in done.out
    assert [("revoked", True)] == [(it["state"], it["providerToTell"]) for it in listed(connected, "--subject", ALICE)]
    assert "revoked, provider to tell" in connected.type("grants", "list").out


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


def test_erasing_a_person_counts_first_asks_and_leaves_nothing(connected: Desk, idp: IdentityProvider):
    dry = connected.type("grants", "erase", "--subject", ALICE, "--dry-run", "--json")
    assert (0, False, 1) == (dry.code, json.loads(dry.out)["erased"], json.loads(dry.out)["grants"])
    asked = connected.type("grants", "erase", "--subject", ALICE)
    assert (2, True) == (asked.code, "say --yes" in asked.err)
    assert ["live", "live"] == [it["state"] for it in listed(connected)]
    done = connected.type("grants", "erase", "--subject", ALICE, "--yes")
    assert (0, True) == (done.code, "grants, ended ones included" in done.out)
    assert [BOB] == [it["subject"] for it in listed(connected)]
    assert 0 == idp.living_tokens(CLIENT_ID, "alice")
    again = connected.type("grants", "erase", "--subject", ALICE, "--json")
    assert (0, True, 0) == (again.code, json.loads(again.out)["erased"], json.loads(again.out)["grants"])
    assert f"Nothing is kept of {ALICE}. Nothing was changed." in again.err


def test_a_provider_that_has_to_be_told_keeps_a_person_from_being_erased(connected: Desk, idp: IdentityProvider):
    idp.script.revoke.answer(503)
    waits = connected.type("grants", "erase", "--subject", ALICE, "--yes", "--wait", "0")
    assert (3, True) == (waits.code, "the provider has still to be told" in waits.err)
    assert {ALICE: "revoked", BOB: "live"} == {it["subject"]: it["state"] for it in listed(connected)}
    assert 0 == connected.type("grants", "erase", "--subject", ALICE, "--yes").code
    assert [BOB] == [it["subject"] for it in listed(connected)]


@pytest.fixture
def accounts(desk: Desk, idp: IdentityProvider) -> Desk:
    """Alice has an unnamed account, and two more."""
    desk.ready_to_serve(idp)
    own = (desk.folder / "config" / "mail.yaml").read_text("utf-8")
    several = own.partition("  owner:")[0] + "  accounts: several\n  owner: {binding: localOperator}\n"
    desk.write("mail", several)
    lines = [
        {"app": "mail", "subject": ALICE, "refreshToken": f"canary-of-{each}", "connection": each, "scopes": ["read"]}
        for each in ("", "work", "home")
    ]
    done = desk.type("grants", "import", "-", stdin="\n".join(map(json.dumps, lines)))
    assert 0 == done.code, done.err
    return desk


@pytest.mark.parametrize(
    ("app", "found"),
    [
        ("mail", ["", "home", "work"]),
        ("mail@work", ["work"]),
        ("OAuthApp/mail@home", ["home"]),
        ("mail@", [""]),
        ("mail@Work", []),
    ],
)
def test_an_account_is_named_behind_its_app(accounts: Desk, app: str, found: list[str]):
    assert found == sorted(it.get("account", "") for it in listed(accounts, "--app", app))


def test_revoking_one_account_leaves_the_others(accounts: Desk):
    refused = accounts.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes")
    assert (2, True) == (refused.code, "Name one as NAME@ACCOUNT" in refused.err)
    done = accounts.type("grants", "revoke", "--app", "mail@work", "--subject", ALICE, "--yes")
    assert done.out.startswith(f"mail {ALICE} work: ended here")
    assert {"": "live", "home": "live", "work": "revoked"} == {
        it.get("account", ""): it["state"] for it in listed(accounts)
    }
