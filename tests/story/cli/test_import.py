"""`oauthbroker grants import`: refresh tokens of another system become grants, exactly once, also after a failure on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Ready, open_broker
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock, to_iso
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.testing import Canaries, IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.cli import CLIENT_ID, MAIN, Desk, environment
from tests.kit.running_broker import tree, turn

ALICE, BOB = "idp:user:U234567", "idp:user:U345678"
Line = dict[str, Any]


async def _grants(desk: Desk) -> list[Grant]:
    settings = load(desk.folder / "config").settings
    root = Path(settings.store_root)
    ring = KeyringFile(root / "data" / "keyring", FileKek.open(desk.key_file)).load()
    repository = Repository(FileStore(root, ring, kinds=KINDS, clock=SystemClock()))
    try:
        return [versioned.record async for versioned in repository.grants()]
    finally:
        await repository.close()


def grants(desk: Desk) -> dict[str, Grant]:
    """As they lie in the store, by subject."""
    return {grant.subject: grant for grant in asyncio.run(_grants(desk))}


def exported(desk: Desk, *, tokens: bool = True) -> list[Line]:
    """What another system would hand over of its people."""
    lines = []
    for grant in sorted(grants(desk).values(), key=lambda it: it.subject):
        assert grant.token is not None
        assert grant.token.refresh_token is not None
        line = {"app": grant.app, "subject": grant.subject, "refreshToken": grant.token.refresh_token.reveal()}
        if tokens:
            assert grant.token.expires_at is not None
            line |= {"accessToken": grant.token.access_token.reveal(), "expiresAt": to_iso(grant.token.expires_at)}
        lines.append(line | {"scopes": list(grant.scopes), "grantedAt": to_iso(grant.created_at)})
    return lines


@pytest.fixture
def lines(desk: Desk, idp: IdentityProvider) -> list[Line]:
    """Alice and Bob agreed elsewhere, to the same client; here is an empty store of their new harness."""
    desk.ready_to_serve(idp)
    for account in ("alice", "bob"):
        desk.connect(account, idp)
    found = exported(desk)
    empty(desk)
    return found


def empty(desk: Desk) -> None:
    for kind in ("grants", "due", "sessions", "waiting", "events", "queues"):
        for path in (desk.folder / "store/data" / kind).iterdir():
            path.unlink()
    assert {} == grants(desk)


def written(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def imported(desk: Desk, lines: Iterable[Line], *words: str, code: int = 0) -> dict[str, Any]:
    done = desk.type("grants", "import", "-", "--json", *words, stdin=written(lines))
    assert code == done.code, done.err
    reported: dict[str, Any] = json.loads(done.out)
    return reported


async def _served(subject: str) -> Any:
    async with open_broker("config", env={}, background=False) as broker:
        return await broker.oauth(turn(user=subject)).get_access_token("mail")


def served(subject: str) -> Ready:
    """What a tool gets."""
    result = asyncio.run(_served(subject))
    assert isinstance(result, Ready), result
    return result


def outcomes(reported: dict[str, Any]) -> list[str]:
    return [it["outcome"] for it in reported["grants"]]


def test_the_same_tokens_are_served_after_the_import(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    asked = idp.count("token")
    reported = imported(desk, lines)
    assert (2, 2, ["imported", "imported"]) == (reported["lines"], reported["imported"], outcomes(reported))
    assert [it["accessToken"] for it in lines] == [served(it["subject"]).access_token.reveal() for it in lines]
    assert asked == idp.count("token"), "the provider was not asked"
    assert lines == exported(desk), "and another harness could take them over from here"


def test_without_an_access_token_the_first_use_refreshes(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    bare = [{name: line[name] for name in ("app", "subject", "refreshToken")} for line in lines]
    imported(desk, bare)
    assert idp.is_alive(served(ALICE).access_token)
    assert 1 == idp.count("refresh_token")
    assert ("read", "write") == grants(desk)[BOB].scopes, "left out, they are all of the app's"


def test_a_token_without_a_known_end_is_refreshed_first(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    imported(desk, [{name: it for name, it in lines[0].items() if name != "expiresAt"}])
    assert lines[0]["accessToken"] != served(ALICE).access_token.reveal()


def reported_of(desk: Desk, subject: str) -> tuple[Line, str]:
    """What the list knows of a grant: as JSON, and all that the commands for people say of it."""
    [grant] = [it for it in json.loads(desk.type("grants", "list", "--json").out) if it["subject"] == subject]
    rows = desk.type("grants", "list", "--subject", subject).out + desk.type("grants", "show", grant["grantId"]).out
    assert "1970" not in rows + json.dumps(grant)
    return grant, rows


def test_an_unused_imported_grant_shows_no_invented_end(desk: Desk, lines: list[Line]):
    imported(desk, [{name: lines[0][name] for name in ("app", "subject", "refreshToken")}])
    grant, rows = reported_of(desk, ALICE)
    assert ("live", "refresh", None, True) == tuple(grant[it] for it in ("state", "needs", "expiresAt", "refreshable"))
    assert "refreshed on first use" in rows
    served(ALICE)
    grant, rows = reported_of(desk, ALICE)
    assert (None, True) == (grant["needs"], grant["expiresAt"] is not None)
    assert "(refreshable)" in rows


def test_a_grant_that_its_provider_does_not_refresh_is_shown_as_one_to_agree_to_again(desk: Desk, lines: list[Line]):
    """It lives here until it is revoked, but no tool gets anything from it."""
    dead = {"app": "mail", "subject": ALICE, "refreshToken": "never-was"}
    assert ["reauthRequired"] == [it["code"] for it in imported(desk, [dead], "--verify", code=1)["grants"]]
    grant, rows = reported_of(desk, ALICE)
    assert ("live", "consent", None, False) == tuple(grant[it] for it in ("state", "needs", "expiresAt", "refreshable"))
    assert "must agree again" in rows
    assert "(refreshable)" not in rows
    assert "authorization_required" == asyncio.run(_served(ALICE)).status


def test_a_grant_that_was_never_refreshed_is_revoked_with_its_own_token(
    desk: Desk, idp: IdentityProvider, lines: list[Line]
):
    """There is no access token to tell the provider of, and none is made up."""
    imported(desk, [{name: lines[0][name] for name in ("app", "subject", "refreshToken")}])
    before = idp.count("revoke")
    assert 0 == desk.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes").code
    assert before + 1 == idp.count("revoke")
    assert 0 == idp.living_tokens(CLIENT_ID, "alice")


def test_a_subject_that_has_a_grant_already_is_left_alone(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    imported(desk, lines[:1])
    assert 0 == desk.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes").code
    desk.connect("bob", idp)
    before = grants(desk)
    reported = imported(desk, [lines[0], lines[1]])
    assert ["revoked", "kept"] == outcomes(reported)
    after = grants(desk)
    assert [grant.to_plaintext() for grant in before.values()] == [grant.to_plaintext() for grant in after.values()]
    reported = imported(desk, lines, "--replace")
    assert ["replaced", "replaced"] == outcomes(reported)
    assert lines[1]["accessToken"] == served(BOB).access_token.reveal()
    assert ["there", "there"] == outcomes(imported(desk, lines, "--replace")), "the same lines again change nothing"


def test_a_login_after_the_import_is_not_taken_back_by_the_same_file(
    desk: Desk, idp: IdentityProvider, lines: list[Line]
):
    imported(desk, lines)
    assert 0 == desk.type("grants", "revoke", "--app", "mail", "--subject", ALICE, "--yes").code
    desk.connect("alice", idp)
    newer = served(ALICE).access_token.reveal()
    assert ["kept", "there"] == outcomes(imported(desk, lines))
    assert newer == served(ALICE).access_token.reveal()


def test_refreshed_grants_are_not_set_back_by_a_repeated_run(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    """Their refresh tokens have moved on; the file's are spent."""
    bare = [{name: line[name] for name in ("app", "subject", "refreshToken")} for line in lines]
    imported(desk, bare)
    token = served(ALICE).access_token.reveal()
    assert ["there", "there"] == outcomes(imported(desk, bare, "--replace"))
    assert token == served(ALICE).access_token.reveal()


def test_verifying_refreshes_each_one_once(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    reported = imported(desk, lines, "--verify")
    assert (2, 0) == (reported["verified"], reported["notVerified"])
    assert 2 == idp.count("refresh_token")
    assert lines[0]["accessToken"] != served(ALICE).access_token.reveal()
    again = imported(desk, lines, "--verify")
    assert (2, 2) == (again["verified"], idp.count("refresh_token")), "once is enough"


def test_verifying_finds_dead_tokens_and_those_of_another_account(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    """Bob's tokens stand in Alice's line: the provider's ID token says so, and neither gets one."""
    swapped = [lines[0] | {"refreshToken": lines[1]["refreshToken"]}, lines[1] | {"refreshToken": "never-was"}]
    reported = imported(desk, swapped, "--verify", code=1)
    assert ["subjectMismatch", "reauthRequired"] == [it["code"] for it in reported["grants"]]
    assert "quarantined" == grants(desk)[ALICE].refresh_state.ended
    result = asyncio.run(_served(ALICE))
    assert "authorization_required" == result.status
    again = imported(desk, swapped, "--verify", code=1)
    assert ["subjectMismatch", "reauthRequired"] == [it["code"] for it in again["grants"]]
    done = desk.type("grants", "import", "-", "--verify", stdin=written(swapped))
    assert f"line 1: mail {ALICE}: written, not verified: subjectMismatch" in done.err


def test_an_account_that_came_along_is_held_against_the_first_refresh(desk: Desk, lines: list[Line]):
    reported = imported(
        desk, [lines[0] | {"account": "U000000"}, lines[1] | {"account": "U345678"}], "--verify", code=1
    )
    assert ["subjectMismatch", None] == [it["code"] for it in reported["grants"]]


def test_a_provider_that_is_down_leaves_them_to_be_verified_later(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    idp.script.refresh.answer(503, times=FOREVER)
    reported = imported(desk, lines, "--verify", code=1)
    assert (0, 2) == (reported["verified"], reported["notVerified"])
    idp.script.reset()
    assert 2 == imported(desk, lines, "--verify")["verified"]


@pytest.mark.case("89")
def test_one_bad_line_and_nothing_is_written(desk: Desk, canaries: Canaries, lines: list[Line]):
    secret = canaries.mint("refresh token").reveal()
    bad = [lines[0], {"app": "other", "subject": "x", "refreshToken": secret}, {"app": "mail", "refreshToken": secret}]
    before = tree(desk.folder)
    done = desk.type("grants", "import", "-", stdin=written(bad))
    assert (2, "") == (done.code, done.out)
    assert "line 2: No app is called other. Check the name against the bundle." in done.err
    assert "line 3: subject is missing" in done.err
    assert "2 problems; nothing of this file was used." in done.err
    error = json.loads(desk.type("grants", "import", "-", "--json", stdin=written(bad)).out)["error"]
    assert [2, 3] == [problem["line"] for problem in error["lines"]]
    assert before == tree(desk.folder)


def test_refused_lines_go_into_a_file_of_numbers_and_reasons(desk: Desk, canaries: Canaries, lines: list[Line]):
    """The good lines are imported. The file holds no token and no value: the lines are in the operator's own file."""
    secret, path = canaries.mint("refresh token").reveal(), desk.folder / "refused.jsonl"
    bad = [{"app": "mail", "subject": secret, "refreshToken": secret}, lines[1], {"app": "mail", secret: secret}]
    done = desk.type("grants", "import", "-", "--refused", str(path), stdin=written([lines[0], *bad]))
    assert 1 == done.code
    assert {ALICE, BOB} == set(grants(desk))
    assert "line 2: subject is not spelt" in done.err
    assert ["lines", "4"] == done.out.splitlines()[0].split()
    assert ["refused", "2"] == done.out.splitlines()[1].split()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {2, 4} == {it["line"] for it in found}
    assert {"line", "what"} == {name for it in found for name in it}
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    canaries.look(path.read_text(), "the file of refused lines")


def test_the_file_of_refused_lines_is_new(desk: Desk, lines: list[Line]):
    path = desk.folder / "refused.jsonl"
    path.write_text("mine\n")
    done = desk.type("grants", "import", "-", "--refused", str(path), stdin=written(lines))
    assert (2, "mine\n", {}) == (done.code, path.read_text(), grants(desk))
    assert "exists. Name a new file." in done.err
    link = desk.folder / "link"
    link.symlink_to(desk.folder / "elsewhere")
    assert 2 == desk.type("grants", "import", "-", "--refused", str(link), stdin=written(lines)).code
    assert not (desk.folder / "elsewhere").exists()
    none = desk.folder / "none" / "refused.jsonl"
    assert 2 == desk.type("grants", "import", "-", "--refused", str(none), stdin=written(lines)).code


def test_lines_that_their_provider_refuses_are_in_the_file_too(desk: Desk, lines: list[Line]):
    path = desk.folder / "refused.jsonl"
    swapped = [lines[0] | {"refreshToken": lines[1]["refreshToken"]}]
    desk.type("grants", "import", "-", "--verify", "--refused", str(path), stdin=written(swapped))
    assert [{"line": 1, "what": "subjectMismatch"}] == [json.loads(it) for it in path.read_text().splitlines()]


def test_more_problems_than_are_shown_are_all_in_the_file(desk: Desk, lines: list[Line]):
    path = desk.folder / "refused.jsonl"
    bad = "{\n" * 700 + written(lines)
    done = desk.type("grants", "import", "-", "--refused", str(path), stdin=bad)
    assert (1, 700) == (done.code, len(path.read_text().splitlines()))
    assert "650 more; --refused FILE and --json have all." in done.err
    assert 2 == len(grants(desk))


def test_access_tokens_alone_are_imported_and_the_lists_say_so(desk: Desk, lines: list[Line]):
    bare = [{name: it for name, it in line.items() if name != "refreshToken"} for line in lines]
    del bare[1]["expiresAt"]
    reported = imported(desk, bare)
    assert (["imported", "imported"], 2) == (outcomes(reported), reported["unverified"])
    assert bare[0]["accessToken"] == served(ALICE).access_token.reveal()
    assert bare[1]["accessToken"] == served(BOB).access_token.reveal()
    grant, rows = reported_of(desk, ALICE)
    assert (None, False, True) == (grant["needs"], grant["refreshable"], grant["unverified"])
    assert "(cannot be refreshed)" in rows
    assert "live, unverified" in rows
    _, rows = reported_of(desk, BOB)
    assert "never" in rows
    said = desk.type("doctor", "--offline", "--forecast").out
    assert "the token ends and there is no refresh token" in said
    assert ["subjectUnverifiable"] * 2 == [it["code"] for it in imported(desk, bare, "--verify", code=1)["grants"]]


def test_a_dry_run_says_what_would_happen(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    imported(desk, lines[:1])
    desk.type("grants", "list")
    before = tree(desk.folder)
    reported = imported(desk, lines, "--dry-run")
    assert (True, ["kept", "imported"]) == (reported["dryRun"], outcomes(reported))
    assert ["replaced", "imported"] == outcomes(imported(desk, lines, "--dry-run", "--replace"))
    assert before == tree(desk.folder)
    done = desk.type("grants", "import", "-", "--dry-run", stdin=written(lines))
    assert "Nothing was changed." in done.err


def test_a_file_that_others_can_read_is_warned_of(desk: Desk, lines: list[Line]):
    path = desk.folder / "lines.jsonl"
    path.write_text(written(lines))
    desk.canaries.excuse(path)
    path.chmod(0o644)
    assert "warning: others can read" in desk.type("grants", "import", str(path), "--dry-run").err
    path.chmod(0o600)
    done = desk.type("grants", "import", str(path), "--app", "mail")
    assert (0, False) == (done.code, "others can read" in done.err)
    assert ["lines", "2"] == done.out.splitlines()[0].split()
    path.unlink()
    assert 2 == desk.type("grants", "import", str(path)).code
    assert 2 == desk.type("grants", "import", str(path), "--app", "nobodys").code


def test_a_pipe_is_a_file_too(desk: Desk, lines: list[Line]):
    path = desk.folder / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(written(lines)))
    writer.start()
    done = desk.type("grants", "import", str(path))
    writer.join(60)
    assert 0 == done.code
    assert {ALICE, BOB} == set(grants(desk))


def test_the_audit_log_knows(desk: Desk, lines: list[Line]):
    imported(desk, lines)
    imported(desk, lines, "--replace")
    entries = [json.loads(line) for line in (desk.folder / "store/data/audit.jsonl").read_text().splitlines()]
    assert [("mail", False)] * 2 == [(it["app"], it["replaced"]) for it in entries if it["type"] == "GrantImported"]


def many(lines: list[Line], count: int) -> list[Line]:
    return [
        lines[0] | {"subject": f"idp:user:N{number}", "refreshToken": f"refresh-{number:04}"} for number in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("when", [1, 40, 150])
def test_killed_on_the_way_and_run_again_nothing_is_twice_and_nothing_is_lost(desk: Desk, lines: list[Line], when: int):
    """kill -9 once so many grants lie there; the second run does the rest, and only the rest."""
    path, folder = desk.folder / "lines.jsonl", desk.folder / "store/data/grants"
    path.write_text(written(many(lines, 300)))
    path.chmod(0o600)
    desk.canaries.excuse(path)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "grants", "import", str(path), "--replace"], cwd=desk.folder, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while sum(not it.name.startswith(".") for it in folder.iterdir()) < when and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    there = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    assert len(there) >= when
    done = desk.type("grants", "import", str(path), "--replace", "--json")
    reported = json.loads(done.out)
    assert 0 == done.code
    assert (len(there), 300 - len(there)) == (reported["there"], reported["imported"])
    assert 300 == len(grants(desk))
    assert there.items() <= {path.name: path.read_bytes() for path in folder.iterdir()}.items()


@pytest.mark.slow
def test_ctrl_c_says_how_far_it_came(desk: Desk, idp: IdentityProvider, lines: list[Line]):
    hold = idp.script.refresh.hang()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "grants", "import", "-", "--verify", "--json"], cwd=desk.folder, env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        process.stdin.write(written(lines))
        process.stdin.close()
        process.stdin = None
        asyncio.run(idp.wait_for("refresh_token", timeout=30))
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        hold.release()
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert 130 == process.returncode
    assert 2 == json.loads(out)["imported"]
