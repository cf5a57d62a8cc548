"""A server is killed in the middle of an import over the API: the same key goes on, and nothing is twice or lost."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.grants.import_requests import AT_ONCE
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Desk, serving

COUNT = 300


def lines_of(desk: Desk) -> list[bytes]:
    token = desk.canaries.mint("access token").reveal()
    line = {"app": "mail", "accessToken": token, "expiresAt": "2099-01-01T00:00:00Z"}
    return [json.dumps(line | {"subject": f"idp:user:N{number}"}).encode() + b"\n" for number in range(COUNT)]


def head_of(desk: Desk, key: str, length: int) -> dict[str, str]:
    return {
        "Host": f"127.0.0.1:{desk.port}", "Authorization": f"Bearer {key}", "Idempotency-Key": "key-1",
        "Content-Type": "application/x-ndjson", "Content-Length": str(length),
    }  # fmt: skip


def imported(desk: Desk, key: str, body: bytes) -> dict[str, Any]:
    with closing(HTTPConnection("127.0.0.1", desk.port, timeout=60)) as connection:
        connection.request("POST", "/v1/grants", body=body, headers=head_of(desk, key, len(body)))
        answer = connection.getresponse()
        data = answer.read()
        assert 200 == answer.status, data
        found: dict[str, Any] = json.loads(data)
        return found


def audited(desk: Desk) -> int:
    lines = (desk.folder / "store/data/audit.jsonl").read_text().splitlines()
    return sum(json.loads(line)["type"] == "GrantImported" for line in lines)


@pytest.mark.slow
def test_a_killed_server_goes_on_with_the_same_key(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    key = desk.type("api-keys", "create", "importer", "--role", "operator").out.split()[-1]
    desk.canaries.may_show("API key")
    desk.canaries.add(key, "API key")
    lines, grants = lines_of(desk), desk.folder / "store" / "data" / "grants"
    body = b"".join(lines)
    with serving(desk) as process:
        head = "".join(f"{name}: {value}\r\n" for name, value in head_of(desk, key, len(body)).items())
        with socket.create_connection(("127.0.0.1", desk.port), timeout=60) as connection:
            connection.sendall(f"POST /v1/grants HTTP/1.1\r\n{head}\r\n".encode() + b"".join(lines[:150]))
            late = time.monotonic() + 60
            while sum(not it.name.startswith(".") for it in grants.iterdir()) < 100:
                assert time.monotonic() < late
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    there = sum(not it.name.startswith(".") for it in grants.iterdir())
    assert 100 <= there < COUNT
    with serving(desk, lines="ab"):
        found = imported(desk, key, body)
        assert (COUNT, COUNT) == (found["lines"], found["imported"] + found["there"])
        assert found == imported(desk, key, body)
    assert COUNT == sum(not it.name.startswith(".") for it in grants.iterdir())
    assert COUNT <= audited(desk) <= COUNT + AT_ONCE, "an entry is written before its grant"
