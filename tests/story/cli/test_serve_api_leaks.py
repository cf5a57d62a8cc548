"""The API of a real server, and the traces it leaves: log, audit, store and figures hold no key and no token, wherever a
caller puts them (cases 89 and 92)."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

import pytest

from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.kit.cli import Desk, log_lines, serving
from tests.kit.running_broker import tree
from tests.story.api.kit import a_turn

pytestmark = pytest.mark.slow


@pytest.fixture
def ready(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    return desk


def say(desk: Desk, method: str, path: str, bearer: str = "", body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request on a connection of its own; status, and JSON where there is some."""
    line = HTTPConnection("127.0.0.1", desk.port, timeout=60)
    try:
        said = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        content = None if body is None else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        line.request(method, path, content, {**said, **kind, **headers})
        answer = line.getresponse()
        text = answer.read()
        is_json = "json" in (answer.getheader("content-type") or "")
        return answer.status, json.loads(text) if is_json else text.decode()
    finally:
        line.close()


def misplace(desk: Desk, secret: str, runtime: str, token: str) -> None:
    """Put it into a wrong place."""
    for method, where in (
        ("GET", f"/v1/apps?access_token={secret}"), ("DELETE", f"/v1/turns/{secret}"), ("GET", f"/{secret}"),
        ("GET", f"/v1/auth-sessions/{secret}"), ("POST", f"/v1/agents/{secret}/events/{secret}/ack"),
    ):  # fmt: skip
        assert say(desk, method, where, runtime, {secret: secret} if method == "POST" else None)[0] >= 204
    assert 400 <= say(desk, "POST", "/v1/tokens", token, {"oauthAppRef": "OAuthApp/mail", secret: secret})[0] < 500
    assert 401 == say(desk, "GET", "/v1/apps", f"{secret}x")[0]
    say(desk, "GET", "/v1/apps", runtime, **{"X-Token": secret, "Cookie": f"t={secret}", "traceparent": secret})
    say(desk, "GET", "/v1/apps", Host=secret[:40])


@pytest.mark.case("89", "92")
async def test_a_story_through_the_api_leaves_no_key_and_no_token_behind(ready: Desk, idp: IdentityProvider) -> None:
    from oauthbroker import open_broker

    async with open_broker("config", env={}, background=False) as broker:
        keys = [(await broker.api_keys.create(role, [role]))[1].reveal() for role in ("runtime", "operator")]
    runtime, operator = keys
    with serving(ready):
        status, begun = say(ready, "POST", "/v1/turns", runtime, a_turn(tools={}))
        assert 201 == status
        token = begun["turnToken"]
        secrets = [*keys, token]
        ask = {"oauthAppRef": "OAuthApp/mail"}
        status, asked = say(ready, "POST", "/v1/tokens", token, ask)
        assert (200, "authorization_required") == (status, asked["status"])
        page = await connect_through(Browser(canaries=ready.canaries), idp, asked["authorizationUrl"], "alice")
        assert 200 == page.status
        status, got = say(ready, "POST", "/v1/tokens", token, ask)
        assert (200, "ready") == (status, got["status"])
        status, narrow = say(ready, "POST", "/v1/turn/narrow", token, {"apps": [ask]})
        assert 200 == status
        secrets += [got["accessToken"], narrow["turnToken"], asked["authorizationUrl"].rpartition("/")[2]]
        status, event = say(ready, "GET", "/v1/agents/planner/events?wait=5", runtime)
        assert 200 == status
        secrets.append(event["lease"])
        path = f"/v1/agents/planner/events/{event['event']['eventId']}/ack"
        assert 204 == say(ready, "POST", path, runtime, {"lease": event["lease"]})[0]
        rejected = {**ask, "accessToken": got["accessToken"]}
        assert 200 == say(ready, "POST", "/v1/tokens/rejected", token, rejected)[0]
        status, text = say(ready, "GET", "/metrics", operator)
        assert 200 == status
        for secret in secrets:
            misplace(ready, secret, runtime, token)
        assert 204 == say(ready, "DELETE", f"/v1/turns/{begun['turnId']}", runtime)[0]
    left = {**tree(ready.folder), "the metrics": text.encode()}
    assert "serve.log" in left
    assert [name for name in left if "audit" in name]
    assert [] == [
        (name, at) for name, content in left.items() for at, it in enumerate(secrets) if it.encode() in content
    ]
    for secret in secrets:
        ready.canaries.add(secret, "a secret of the API")
    assert [] == ready.canaries.search((ready.folder / "serve.log").read_text(), "the log")
    routes = {line["route"] for line in log_lines(ready) if line["event"] == "request"}
    assert {"/v1/tokens", "/v1/turns", "/v1/turns/{turnId}", "/v1/agents/{agent}/events/{eventId}/ack"} <= routes
