"""The OpenAPI document: whole, valid, true to the table, and every example in it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from oauthbroker.model.bundle import ToolAuth
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.api.call_table import OPERATIONS, Operation
from oauthbroker.web.api.openapi import codes_of, described, document
from tests.kit import planted_records
from tests.kit.running_broker import global_app, running, turn
from tests.story.api.kit import ANSWERS, BODIES, EVERY, LINES, PARAMETERS, Answer, Callers, sent_with, validator

EVENT, SESSION = PARAMETERS["ackEvent"]["eventId"], PARAMETERS["getAuthSession"]["id"]
GRANT, TURN, LEASE = (
    PARAMETERS["endGrant"]["grantId"],
    PARAMETERS["endTurn"]["turnId"],
    BODIES["ackEvent"]["runtime"]["lease"],
)
PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8")
MAY_SHOW = ("turn token", "ticket", "access token")


def content_of(operation: Operation, status: int) -> dict[str, Any]:
    said = document()["paths"][operation.path][operation.method.lower()]["responses"][str(status)]
    content: dict[str, Any] = said.get("content", {})
    return content


async def test_the_document_is_served_unchanged_to_every_caller(api: Callers) -> None:
    answer = await api.stranger.get("/v1/openapi.json")
    assert (200, "application/json") == (answer.status, answer.headers["content-type"])
    assert document() == answer.json()
    assert "3.1.0" == answer.json()["openapi"]


def test_every_operation_is_described_once_and_nothing_else_is() -> None:
    said = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    assert {(operation.method, operation.path) for operation in EVERY} == said
    assert len(EVERY) == len(said) == len({operation.id for operation in EVERY})
    assert {operation.id for operation in EVERY} == set(described()["operations"])


def test_the_path_with_slashes_is_named_and_not_listed() -> None:
    assert "`/v1/proxy/{app}/{host}/{path}`" in document()["info"]["description"]


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    text = json.dumps(document())
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names == set(document()["components"]["schemas"]), "no schema is missing and none is left over"
    for schema in document()["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation.id)
def test_an_operation_says_who_may_call_it_and_every_way_it_can_be_refused(operation: Operation) -> None:
    said = document()["paths"][operation.path][operation.method.lower()]
    schemes = set(document()["components"]["securitySchemes"])
    assert bool(operation.who) == bool(said["security"])
    assert {scheme for each in said["security"] for scheme in each} <= schemes
    reported = {
        code
        for response in said["responses"].values()
        for part in response.get("content", {}).get("application/problem+json", {}).get("schema", {}).get("allOf", ())
        for code in part.get("properties", {}).get("code", {}).get("enum", ())
    }
    assert set() == {code.value for code in codes_of(operation)} - reported
    assert set(re.findall(r"\{(\w+)\}", operation.path)) == {
        each["name"] for each in said.get("parameters", ()) if each["in"] == "path"
    }


EXAMPLES = [
    pytest.param(operation, status, name, value, id=f"{operation.id} {status} {name}")
    for operation in OPERATIONS
    for status, answer in ANSWERS[operation.id].items()
    for name, value in answer.get("examples", {}).items()
]


@pytest.mark.parametrize("operation, status, name, value", EXAMPLES)
def test_an_example_of_an_answer_is_an_answer(operation: Operation, status: int, name: str, value: Any) -> None:
    validator(content_of(operation, status)["application/json"]["schema"]).validate(value)


def test_every_answer_with_a_body_and_every_body_and_parameter_has_an_example() -> None:
    for operation in OPERATIONS:
        for answer in ANSWERS[operation.id].values():
            assert ("schema" in answer) == bool(answer.get("examples")), operation.id
        assert len(operation.bodies) == len(BODIES[operation.id]), operation.id
        assert set(BODIES[operation.id]) <= set(operation.who), operation.id
        path = set(re.findall(r"\{(\w+)\}", operation.path))
        assert path <= set(PARAMETERS[operation.id]), operation.id


def requests() -> list[Any]:
    return [
        pytest.param(operation, who, id=f"{operation.id} as {who}")
        for operation in OPERATIONS
        for who in (BODIES[operation.id] or operation.who[:1])
    ]


@pytest.fixture
async def slack(identity_provider: IdentityProvider, test_clock: TestClock) -> Any:
    """What the examples speak of: an app `slack-bot` for the team, a grant, a waiting user, an event."""
    app = global_app(identity_provider, "slack-bot", scopes=("chat:write", "channels:read"))
    tools = {"Tool/slack": (ToolAuth("slack-bot", ("chat:write",)),)}
    async with running(identity_provider, [app], clock=test_clock, tools=tools) as harness:
        yield harness


@pytest.mark.parametrize("operation, who", requests())
async def test_every_example_of_a_request_runs(slack: Any, operation: Operation, who: str) -> None:
    """The example as it stands, but for the names of what this harness has: ids, a lease, and the team's own spelling."""
    api = await Callers.of(slack)
    dead = await planted_records.dead_letter(slack, app="slack-bot") if "DeadLetter" in operation.id else None
    waiting = await slack.ask_link("slack-bot", of=turn(instance="another"))
    Canaries.active().add(waiting.authorization_url.rpartition("/")[2], "ticket")
    await slack.connected("slack-bot")
    begun = await api.begin({**BODIES["beginTurn"]["runtime"], "tools": {}})
    names = {SESSION: waiting.auth_session_id, TURN: begun["turnId"]}
    [grant] = [each async for each in slack.broker.grants.list()]
    names[GRANT] = grant.grantId
    names = names if dead is None else {EVENT: dead.id, **names}
    if operation.id in {"ackEvent", "nackEvent"}:
        leased = (await api.runtime.get("/v1/agents/planner/events?wait=5")).json()
        names = {EVENT: leased["event"]["eventId"], LEASE: leased["lease"], **names}
    caller = {"runtime": api.runtime, "operator": api.operator}.get(who) or api.holding(begun["turnToken"])
    answer = await _send(operation, who, caller, names)
    pending_code = (
        operation.id == "confirmAuthSession"
    )  # nothing waits to be confirmed here: tests/story/api/test_sessions.py
    assert answer.status in ({400} if pending_code else ANSWERS[operation.id]), answer.text
    content = content_of(operation, answer.status)
    if not content:
        assert b"" == answer.body
        return
    media = answer.headers["content-type"]
    validator(content[media]["schema"]).validate(answer.json())


async def _send(operation: Operation, who: str, caller: Any, names: dict[str, str]) -> Answer:
    said = {name: _renamed(str(value), names) for name, value in PARAMETERS[operation.id].items()}
    path = operation.path.format(**said)
    query = "&".join(f"{name}={value}" for name, value in said.items() if f"{{{name}}}" not in operation.path)
    body = _renamed(json.dumps(BODIES[operation.id].get(who)), names).encode()
    if operation.id in LINES:
        body = next(iter(LINES[operation.id]["examples"].values()))["value"].encode()
    target = f"{path}?{query}" if query else path
    answer: Answer = await caller.send(operation.method, target, body=body, allow=MAY_SHOW, **sent_with(operation))
    return answer


def _renamed(text: str, names: dict[str, str]) -> str:
    for example, real in names.items():
        text = text.replace(example, real)
    return text


def test_the_page_names_every_call_every_header_and_no_call_that_is_none() -> None:
    named = set(re.findall(r"`(GET|POST|DELETE) (/[^`?\s]+)", PAGE))
    assert {(operation.method, operation.path) for operation in EVERY} == named
    for scheme in ("oabt.", "oabk.", "WWW-Authenticate", "Retry-After", "application/problem+json", "X-Request-Id"):
        assert scheme in PAGE
    for code in {code for operation in EVERY for code in codes_of(operation)}:
        assert f"`{code.value}`" in PAGE, code
