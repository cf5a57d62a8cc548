"""`oauthbroker health`: the probe of a container, at the port that the configuration names."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk, serving


@pytest.mark.slow
def test_a_broker_that_serves_is_well_wherever_it_listens(desk: Desk, identity_provider: IdentityProvider):
    """Also where it listens on every address, which is none that could be asked."""
    desk.ready_to_serve(identity_provider)
    everywhere = BROKER.replace("host: 127.0.0.1", "host: 0.0.0.0").format(base=desk.base, port=desk.port)
    desk.write("broker", everywhere)
    with serving(desk):
        done = desk.type("health")
        assert (0, "ok\n", "") == (done.code, done.out, done.err)
        assert {"status": "ok"} == json.loads(desk.type("health", "--json").out)


def test_without_a_broker_the_status_is_one_and_the_sentence_says_what_to_do(desk: Desk):
    done = desk.type("health")
    assert (1, "") == (done.code, done.out)
    assert f"No broker answers on port {desk.port}. Start it with `oauthbroker serve`.\n" == done.err
    assert {"status": "silent"} == json.loads(desk.type("health", "--json").out)


@pytest.mark.parametrize(("option", "code"), [([], 1), (["--alive"], 0)], ids=["a check", "a probe"])
def test_a_red_broker_is_a_failure_but_no_reason_for_a_restart(desk: Desk, option: list[str], code: int):
    body = b'{"status": "red", "problems": ["configInvalid"]}'
    with answering(desk.port, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)):
        done = desk.type("health", *option)
    assert (code, "red configInvalid\n") == (done.code, done.out)
    assert "The broker's log has the cause of each code. `oauthbroker doctor` looks for what to do.\n" == done.err


@contextmanager
def answering(port: int, answer: bytes) -> Iterator[None]:
    """A program that is no broker listens at the port, and answers this once."""
    with socket.create_server(("127.0.0.1", port)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(60)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"ok"',
        b'HTTP/1.1 503 Busy\r\nContent-Length: 15\r\n\r\n{"status":"ok"}',
        b"SSH-2.0-none\r\n",
        b"",
    ],
    ids=["text", "no object", "another status", "another protocol", "nothing"],
)
def test_another_program_at_that_port_is_no_broker(desk: Desk, answer: bytes):
    with answering(desk.port, answer):
        assert 1 == desk.type("health").code
