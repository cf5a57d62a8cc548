"""A system without Linux's own calls, as macOS is: commands, a whole consent, and serve over loopback and a Unix socket."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.client import AuthorizationRequired, Ready, SyncRuntime
from oauthbroker.core import durable_sync, peers
from oauthbroker.serving import hardening
from oauthbroker.store.file.place_checks import locks_exclude
from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.kit.cli import REPOSITORY, Desk, environment, serving
from tests.kit.other_system import MISSING
from tests.kit.running_broker import turn
from tests.kit.warm_python import cold_starts

PRELUDE = "from tests.kit.other_system import take_away; take_away()\n"
COMMANDS = """
import asyncio, sys
from oauthbroker.cli import run
from oauthbroker import open_broker
from tests.kit.other_system import full_syncs

COMMANDS = "init", "secrets set mail client_secret", "check", "doctor", "api-keys create runtime --role runtime", "grants list"
for words in map(str.split, COMMANDS):
    code = run(words)
    assert code == 0 or words == ["doctor"] and "Traceback" not in str(code), (words, code)

async def embedded():
    async with open_broker("config") as broker, broker.serving():
        await broker.api_keys.create("other", ["runtime"])

asyncio.run(embedded())
assert full_syncs, "durable writes reach the disk"
"""
# Each use in the core of a name that macOS lacks, with what stands beside it.
GUARDED = {
    ("core/peers.py", "SO_PEERCRED"): "LOCAL_PEERCRED",
    ("store/file/place_checks.py", "O_TMPFILE"): "whether locks exclude is not known then",
    ("store/posix/system_calls.py", "posix_fallocate"): "the write reports a full disk",
}
OF_LINUX = ("tools/isolation/", "tools/orchestration/")  # agents in isolation need bubblewrap, which is Linux's


def test_commands_and_an_embedded_broker_run_without_the_calls_of_linux(desk: Desk, idp: IdentityProvider) -> None:
    secret = desk.serve_app_of(idp).encode()
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + COMMANDS], cwd=desk.folder, env=environment(), input=secret, capture_output=True,
            check=False,
        )  # fmt: skip
    assert 0 == done.returncode, done.stderr.decode()
    desk.canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    for key in re.findall(r"obak\S+", done.stdout.decode()):
        desk.canaries.add(key, "API key")


def test_a_consent_by_a_server_without_the_calls_of_linux(
    desk: Desk, idp: IdentityProvider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "api"  # short enough for a socket
    desk.ready_to_serve(idp)
    broker = (desk.folder / "config" / "broker.yaml").read_text("utf-8")
    desk.write("broker", broker + f"  api: {{socket: {{path: {path}}}}}\n")
    key = desk.type("api-keys", "create", "runtime", "--role", "runtime").out.strip()
    of = turn(user=f"idp:user:{idp.account('alice').sub}")
    with cold_starts(), serving(desk, prelude=PRELUDE) as process:
        with SyncRuntime(f"unix:{path}", key) as runtime, runtime.turn(of) as begun:
            asked = begun.oauth().get_access_token("mail")
            assert isinstance(asked, AuthorizationRequired), asked
            page = asyncio.run(connect_through(Browser(canaries=desk.canaries), idp, asked.authorization_url, "alice"))
            assert 200 == page.status, page.text
            assert isinstance(begun.oauth().get_access_token("mail"), Ready)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)


def test_each_use_of_a_call_that_macos_lacks_has_another_way() -> None:
    names = {each for group in MISSING.values() for each in group}
    spelled = re.compile(
        r"(?:\b(?:os|socket|select|signal|fcntl|resource|time)\.|\")(" + "|".join(sorted(names)) + r")\b"
    )
    found = {
        (path, name)
        for file in sorted((REPOSITORY / "oauthbroker").rglob("*.py"))
        if not (path := file.relative_to(REPOSITORY / "oauthbroker").as_posix()).startswith(OF_LINUX)
        for name in spelled.findall(file.read_text("utf-8"))
    }
    assert set(GUARDED) == found


@pytest.mark.parametrize("refusal", [None, 45])
def test_a_durable_write_goes_past_the_cache_of_the_drive_where_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    """A file system that cannot is synced as everywhere else."""
    asked, synced = list[int](), list[int]()

    def control(_descriptor: int, command: int) -> None:
        asked.append(command)
        if refusal is not None:
            raise OSError(next(iter(durable_sync._WITHOUT)), "not here")

    monkeypatch.setattr(durable_sync, "_FULL", 51)
    monkeypatch.setattr("fcntl.fcntl", control)
    monkeypatch.setattr(os, "fsync", synced.append)
    durable_sync._past_the_cache(7)
    assert ([51], [] if refusal is None else [7]) == (asked, synced)


def test_a_peer_is_known_by_the_option_of_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    class Line:
        family = socket.AF_UNIX

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (0, 1, 76) == (level, option, size)
            return (0).to_bytes(4, "little") + (501).to_bytes(4, "little") + bytes(68)

    monkeypatch.delattr("socket.SO_PEERCRED")
    line: Any = Line()
    assert 501 == peers.uid_at(line)


def test_a_worker_notices_that_its_parent_has_died_without_help_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    parents, sent, over = [41, 41, 1], list[tuple[int, int]](), threading.Event()

    def kill(process: int, number: int) -> None:
        sent.append((process, number))
        over.set()

    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    monkeypatch.setattr(os, "kill", kill)
    hardening.end_with_parent(41)
    assert over.wait(30)
    assert [(os.getpid(), hardening.ORPHANED)] == sent


def test_whether_locks_exclude_is_not_known_without_a_file_that_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    assert locks_exclude(tmp_path) is None
