"""`oauthbroker demo`, as a newcomer types it: the README's main job on one machine, and nothing secret on the screen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from oauthbroker.testing import Browser, Canaries
from oauthbroker.testing.canary import MARK
from tests.kit import postgres
from tests.kit.cli import MAIN, Done, command, environment

pytestmark = pytest.mark.slow

LINK = re.compile(r"http://127\.0\.0\.1:\d+/connect/\S+")
TOOL = {
    "messages": [
        {"id": 1, "text": "Good morning, Alice."},
        {"id": 2, "text": "The build is green."},
        {"id": 3, "text": "Lunch at noon?"},
    ]
}


@dataclass(frozen=True)
class Played:
    """One `demo --auto` and the folder that it left."""

    folder: Path
    done: Done
    seconds: float


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Shared by tests that only look at its output and files."""
    folder, started = tmp_path_factory.mktemp("demo"), time.monotonic()
    done = command("demo", "--auto", cwd=folder)
    return Played(folder, done, time.monotonic() - started)


def test_auto_plays_the_whole_story_and_its_last_line_is_json(played: Played):
    done = played.done
    assert (0, "") == (done.code, done.err)
    assert played.seconds < 60, "no deadline of the story was waited for"
    assert {"status": "ready", "event": "auth.granted", "tool": TOOL} == json.loads(done.out.splitlines()[-1])
    reported = [
        done.out.index(word) for word in ("authorization_required", "/connect/", "auth.granted", "ready: a token")
    ]
    assert sorted(reported) == reported


@pytest.mark.case("89")
def test_nothing_secret_is_printed_or_lies_in_the_folder(played: Played):
    """The provider marks every code, token and client secret that it makes."""
    done, folder = played.done, played.folder
    assert MARK not in done.out + done.err
    ticket = LINK.findall(done.out)[0].rpartition("/")[2]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert MARK.encode() not in path.read_bytes(), path.name
        assert ticket.encode() not in path.read_bytes(), path.name
    log = [json.loads(line) for line in (folder / "store/demo/broker.log").read_text().splitlines()]
    assert ("/oauth/callback/demo-mail", 303) in [(line.get("route"), line.get("status")) for line in log]


def test_each_time_it_begins_anew_also_with_json_on_stdout_and_the_story_aside(tmp_path: Path, played: Played):
    shutil.copytree(played.folder, tmp_path, dirs_exist_ok=True)
    first = (tmp_path / "store/demo/data/keyring").read_bytes()
    done = command("demo", "--auto", "--json", cwd=tmp_path)
    assert 0 == done.code
    assert {"status": "ready", "event": "auth.granted", "tool": TOOL} == json.loads(done.out)
    assert "ready: a token" in done.err
    assert "authorization_required" in done.err, "the first one's grant is gone"
    assert first != (tmp_path / "store/demo/data/keyring").read_bytes()


def test_the_records_go_to_an_empty_database_and_one_with_a_store_is_refused(
    tmp_path: Path, postgres_server: postgres.Server
):
    """Between the two, the store is as the first demo left it."""
    postgres_server.empty_database("demo")
    try:
        url = postgres_server.url("demo").reveal()
        done = command("demo", "--auto", "--store", url, cwd=tmp_path)
        assert (0, "") == (done.code, done.err)
        assert {"status": "ready", "event": "auth.granted", "tool": TOOL} == json.loads(done.out.splitlines()[-1])
        with psycopg.connect(url) as connection:
            kept = connection.execute("select count(*) from oauthbroker.entry").fetchall()
            assert kept > [(0,)]
            again = command("demo", "--auto", "--store", url, cwd=tmp_path)
            assert (2, "") == (again.code, again.out)
            assert "keyring" in again.err
            assert kept == connection.execute("select count(*) from oauthbroker.entry").fetchall()
    finally:
        postgres_server.run("drop database demo with (force)")


def test_a_password_in_the_url_of_the_database_is_refused_before_anything_is_made(tmp_path: Path):
    done = command("demo", "--auto", "--store", f"postgresql://me:{MARK}@127.0.0.1/demo", cwd=tmp_path)
    assert (2, "") == (done.code, done.out)
    assert "PGPASSWORD" in done.err
    assert MARK not in done.err
    assert not any(tmp_path.iterdir())


def test_its_bundle_is_one_that_people_could_have_written(played: Played):
    done = command("check", "store/demo/config", cwd=played.folder)
    assert 0 == done.code
    assert "is valid: 1 app, 1 caller." in done.out


def test_a_folder_of_another_user_is_refused_and_kept(tmp_path: Path):
    (tmp_path / "store" / "demo").mkdir(parents=True)
    (tmp_path / "store" / "demo" / "mine").write_text("x")
    done = command("demo", "--auto", cwd=tmp_path)
    assert (2, "") == (done.code, done.out)
    assert "was not made by a demo" in done.err
    assert (tmp_path / "store" / "demo" / "mine").exists()


def test_a_port_that_is_taken_is_reported_plainly(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("demo", "--auto", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert 2 == done.code
    assert "another process listens there" in done.err


@contextlib.contextmanager
def waiting(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that waits for its person, and the link it shows."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", MAIN, "demo"], cwd=folder, env=environment(), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process, link_of(process)
    finally:
        process.kill()
        process.communicate()


def link_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := LINK.search(line):
            return found[0]
    pytest.fail("it never showed a link")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_and_leaves_no_key_behind(tmp_path: Path, ending: signal.Signals):
    with waiting(tmp_path) as (process, _):
        text = (tmp_path / "store/demo/config/demo.yaml").read_text()
        key_file = Path(re.findall(r'keys: \{file: "(.+)"\}', text)[0])
        assert key_file.exists()
        process.send_signal(ending)
        _, err = process.communicate(timeout=60)
    assert (130, "\nStopped. Nothing runs any more.\n") == (process.returncode, err)
    assert not key_file.parent.exists()


def go(link: str, *steps: dict[str, str]) -> None:
    """A person who presses these buttons, one page after the other."""

    async def person() -> None:
        with Canaries():
            browser = Browser()
            page = await browser.open(link)
            for fields in steps:
                page = await browser.submit(fields) if fields else await browser.submit()
                while page.next_url:
                    page = await browser.follow()

    asyncio.run(person())


def test_a_person_agrees_and_the_agent_goes_on_by_itself(tmp_path: Path):
    with waiting(tmp_path) as (process, link):
        go(link, {}, {"login": "alice"}, {"decision": "allow"})
        out, err = process.communicate(timeout=60)
    assert (0, "") == (process.returncode, err)
    assert "Good morning, Alice." in out
    assert MARK not in out


def test_another_person_gets_nothing_and_the_agent_asks_again(tmp_path: Path):
    with waiting(tmp_path) as (process, link):
        go(link, {}, {"login": "bob"}, {"decision": "allow"})
        second = link_of(process)
        assert second != link
        go(second, {}, {"login": "alice"}, {"decision": "allow"})
        out, _ = process.communicate(timeout=60)
    assert 0 == process.returncode
    assert "Good morning, Alice." in out
    assert "Bob." not in out


def test_a_no_is_heard(tmp_path: Path):
    with waiting(tmp_path) as (process, link):
        go(link, {}, {"login": "alice"}, {"decision": "deny"})
        out, _ = process.communicate(timeout=60)
    assert 1 == process.returncode
    assert "You said no. Nothing was connected, and the agent knows." in out
