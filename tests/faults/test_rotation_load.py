"""Keys rotate, are sealed anew, retired and wrapped for another key while broker processes serve and refresh: no call
fails, and no token family is lost."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, open_broker
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from tests.kit.cli import BROKER, Desk
from tests.kit.forms import is_long
from tests.kit.running_broker import turn

ENV = "BROKER_DATABASE_URL"
PROCESSES = 3
ROUNDS = 2 if is_long() else 1
"""Changes of the seed before the one that is wrapped for the new key alone."""
DATABASE = "rotation_load"


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture(params=["files", "postgres"])
def desk(request: Any, tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        server.empty_database(DATABASE)
        monkeypatch.setenv(ENV, server.url(DATABASE).reveal())
        text = BROKER.format(base=desk.base, port=desk.port)
        desk.write(
            "broker", text.replace("{root: ../store}", f"{{root: ../store, url: {{valueFrom: {{env: {ENV}}}}}}}")
        )
    return desk


@contextmanager
def worker(subject: str) -> Iterator[subprocess.Popen[str]]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.faults.rotation_worker", subject]
    env = os.environ | {"PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    with (
        Path("worker.log").open("a") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=env) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


async def connect(desk: Desk, idp: IdentityProvider, subject: str) -> None:
    async with open_broker("config") as broker:
        asked = await broker.oauth(turn(user=subject)).get_access_token("mail", min_ttl_seconds=0)
        assert isinstance(asked, AuthorizationRequired)
        browser = Browser(apps={desk.base: broker.asgi.app}, canaries=desk.canaries)
        page = await connect_through(browser, idp, asked.authorization_url, "alice")
        assert 200 == page.status, page.text


def keys_of(desk: Desk, text: str) -> None:
    """Write other keys into the configuration."""
    written = (desk.folder / "config" / "broker.yaml").read_text()
    lines = [line for line in written.splitlines() if not line.startswith("  keys:")]
    desk.write("broker", "\n".join([*lines, f"  keys: {text}", ""]))


def change(desk: Desk, *words: str) -> str:
    done = desk.type("keys", *words)
    assert 0 == done.code, (words, done, Path("worker.log").read_text()[-2000:])
    return done.out


@pytest.mark.case("70")
@pytest.mark.slow
def test_no_call_fails_while_every_key_changes(desk: Desk, idp: IdentityProvider):
    desk.ready_to_serve(idp)
    idp.change("client-mail", access_lifetime=1, rotate_refresh=True)
    subject = f"idp:user:{idp.account('alice').sub}"
    asyncio.run(connect(desk, idp, subject))
    old, new = "../keys/broker.kek", "../keys/new.kek"
    keys_of(desk, f"{{file: {new}, also: [{{file: {old}}}]}}")
    FileKek.create(desk.folder / "keys" / "new.kek")
    desk.canaries.excuse(desk.folder / "keys" / "new.kek")
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(subject)) for _ in range(PROCESSES)]
        for each in workers:
            assert each.stdout is not None
            assert "up" == each.stdout.readline().strip(), Path("worker.log").read_text()[-2000:]
        for _ in range(ROUNDS):
            change(desk, "rotate", "--wait", "60")
            change(desk, "rewrap")
            change(desk, "reseal")
            change(desk, "retire", "--yes")
        keys_of(desk, f"{{file: {new}}}")
        change(desk, "rewrap")
        change(desk, "rotate", "--wait", "60")
        change(desk, "reseal")
        change(desk, "retire", "--yes")
        reported, tokens = Counter[str](), set[str]()
        for each in workers:
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.close()
            answer = json.loads(each.stdout.readline())
            reported.update(answer["told"])
            tokens |= set(answer["tokens"])
    assert {"ready"} == set(reported), reported
    assert reported["ready"] > 50 * ROUNDS
    assert len(tokens) > 2 * ROUNDS, "it was refreshed meanwhile"
    status = json.loads(change(desk, "status", "--json"))
    assert [ROUNDS + 2, 1, 0] == [status["epoch"], len(status["keys"]), status["processesBehind"]]
    assert ["destroyed"] * (ROUNDS + 1) + ["active"] == [seed["state"] for seed in status["seeds"]]
    assert [0] * (ROUNDS + 1) == [seed["records"] for seed in status["seeds"][:-1]]
    assert "ready" in str(reported)
    types = Counter(json.loads(line).get("action") for line in audit_lines(desk) if '"KeysChanged"' in line)
    assert dict.fromkeys(("rotate", "rewrap", "reseal", "retire"), ROUNDS + 1) == dict(types)


def audit_lines(desk: Desk) -> list[str]:
    files = [
        *(desk.folder / "store" / "data").glob("audit*.jsonl"),
        *(desk.folder / "store" / "data" / "audit").rglob("audit*.jsonl"),
    ]
    return [line for file in files for line in file.read_text().splitlines()]
