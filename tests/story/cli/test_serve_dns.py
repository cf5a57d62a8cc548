"""`oauthbroker serve` while a provider's name server hangs: all other calls are served at the usual pace."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.kit.cli import Desk, log_lines, serving

pytestmark = [pytest.mark.slow, pytest.mark.case("55")]

HANGING = 24  # apps, each at a host of its own that hangs
RESOLVER = """
import json, socket, sys, time
def getaddrinfo(host, *_, **__):
    if host.startswith("hang"):
        print(json.dumps({"event": "looked up", "host": host}), flush=True)
        time.sleep(600)
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.99.0.7", 0))]
socket.getaddrinfo = getaddrinfo
"""
LOOPS = {"uvloop": "", "asyncio": "sys.modules['uvloop'] = None\n"}
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: {name}}}
spec:
  provider: own
  flow: clientCredentials
  subjectMode: global
  client: {{clientId: {{value: me}}, clientSecret: {{valueFrom: {{env: CLIENT_SECRET}}}}}}
  endpoints: {{tokenUrl: "https://{host}.example/token"}}
  scopes: [read]
"""


@pytest.fixture
def key(desk: Desk) -> str:
    for name, host in {"well": "idp", **{f"ill-{each}": f"hang-{each}" for each in range(HANGING)}}.items():
        desk.write(name, APP.format(name=name, host=host))
    desk._patch.setenv("CLIENT_SECRET", desk.canaries.mint("client secret").reveal())
    assert 0 == desk.type("init").code
    desk.canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    return desk.type("api-keys", "create", "runtime", "--role", "runtime").out.strip()


def call(desk: Desk, bearer: str, path: str, said: dict[str, Any]) -> dict[str, Any]:
    line = HTTPConnection("127.0.0.1", desk.port, timeout=60)
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
    line.request("POST", path, json.dumps(said), headers)
    answer: dict[str, Any] = json.loads(line.getresponse().read())
    line.close()
    return answer


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_name_server_that_hangs_holds_up_its_own_apps_alone(desk: Desk, key: str, loop: str) -> None:
    """The app that is well is dialled at once, and refused for its address, which is not the public internet's."""
    prelude = RESOLVER + loop
    secret = desk.canaries.mint("client secret").reveal()
    with serving(desk, prelude=prelude, CLIENT_SECRET=secret), ThreadPoolExecutor(HANGING) as callers:
        of_turn = {"agentName": "a", "instanceKey": "i", "auth": {"subjects": {"global": "team:T1"}}}
        turn = call(desk, key, "/v1/turns", {"turn": of_turn})["turnToken"]
        desk.canaries.add(turn, "turn token")
        ill = [
            callers.submit(call, desk, turn, "/v1/tokens", {"oauthAppRef": f"OAuthApp/ill-{each}"})
            for each in range(HANGING)
        ]
        time.sleep(1)
        assert not any(each.done() for each in ill)
        well = call(desk, turn, "/v1/tokens", {"oauthAppRef": "OAuthApp/well"})
        assert "appMisconfigured" == well["error"]["code"]
        assert not any(each.done() for each in ill)
        assert {"providerUnreachable"} == {each.result()["error"]["code"] for each in ill}
        again = call(desk, turn, "/v1/tokens", {"oauthAppRef": "OAuthApp/ill-0"})
        assert "providerUnreachable" == again["error"]["code"]
        asked = [line["host"] for line in log_lines(desk) if line["event"] == "looked up"]
        assert sorted(f"hang-{each}.example" for each in range(HANGING)) == sorted(asked), (
            "a host whose lookup hangs is looked up once"
        )
    assert ["stopping", "stopped"] == [line["event"] for line in log_lines(desk)][-2:]
