"""The scripted provider as a process of its own."""

from __future__ import annotations

import socket

import pytest

from oauthbroker.testing.provider.__main__ import main


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as ended:
        port = taken.getsockname()[1]
        main(["--port", str(port)])
    assert f"Cannot listen on 127.0.0.1 port {port}" in str(ended.value.code)
    assert "--port" in str(ended.value.code)
