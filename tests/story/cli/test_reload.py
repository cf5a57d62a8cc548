"""SIGHUP makes a running `oauthbroker serve` take its configuration anew; a broken one changes nothing but its health."""

from __future__ import annotations

import json
import signal
import subprocess
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.kit.cli import APP, Desk, serving
from tests.kit.served_api import log_events, until

pytestmark = [pytest.mark.slow, pytest.mark.case("98")]


def get(desk: Desk, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", desk.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def hang_up(desk: Desk, process: subprocess.Popen[bytes], event: str) -> dict[str, Any]:
    """SIGHUP, and the line in which the broker says what came of it."""
    before = len(log_events(desk, event))
    process.send_signal(signal.SIGHUP)
    until(lambda: len(log_events(desk, event)) > before)
    return log_events(desk, event)[-1]


def test_sighup_loads_a_good_configuration_and_keeps_the_old_one_otherwise(
    desk: Desk, idp: IdentityProvider, canaries: Canaries
):
    desk.ready_to_serve(idp)
    idp.register(Client("client-files", redirect_uris=(f"{desk.base}/oauth/callback/files",)))
    files = APP.format(issuer=idp.issuer).replace("name: mail", "name: files").replace("client-mail", "client-files")
    value = canaries.mint("a value").reveal()
    with serving(desk) as process:
        assert 404 == get(desk, "/oauth/callback/files")[0]
        desk.write("files", files)
        assert ["files"] == hang_up(desk, process, "reloaded")["changed"]
        assert 400 == get(desk, "/oauth/callback/files")[0]

        desk.write("files", files.replace("flow: authorizationCode", f"flow: {value}").replace("subjectMode: user", ""))
        refused = hang_up(desk, process, "the new configuration is refused, the old one stays")
        assert ("error", "configInvalid", 2) == (refused["level"], refused["code"], refused["problems"])
        assert (200, {"status": "red", "problems": ["configInvalid"]}) == health(desk)
        assert 400 == get(desk, "/oauth/callback/files")[0]

        (desk.folder / "config" / "files.yaml").unlink()
        assert ["files"] == hang_up(desk, process, "reloaded")["changed"]
        assert (200, {"status": "ok"}) == health(desk)
        assert (404, 400) == (get(desk, "/oauth/callback/files")[0], get(desk, "/oauth/callback/mail")[0])
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)


def test_another_port_takes_a_restart(desk: Desk, idp: IdentityProvider):
    desk.ready_to_serve(idp)
    broker = (desk.folder / "config" / "broker.yaml").read_text("utf-8")
    with serving(desk) as process:
        desk.write("broker", broker.replace(f"port: {desk.port}", "port: 1"))
        refused = hang_up(desk, process, "the new configuration is refused, the old one stays")
        assert (1, True) == (refused["problems"], "spec.listen.port: Cannot change" in refused["details"][0])
        assert "red" == health(desk)[1]["status"]
        desk.write("broker", broker)
        assert [] == hang_up(desk, process, "reloaded")["changed"]
        assert "ok" == health(desk)[1]["status"]


def health(desk: Desk) -> tuple[int, dict[str, Any]]:
    status, body = get(desk, "/healthz")
    return status, json.loads(body)
