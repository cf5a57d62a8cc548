"""What a refused call says to the program that made it: where its request is wrong, and which broker did not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oauthbroker.client import BrokerError, Code, Runtime, SyncRuntime, Turn
from tests.kit.cli import free_port
from tests.unit.client.kit import KEY, fake_broker, patient, says

TURN = Turn("planner", "i")
PLACES = [{"pointer": "/turn/agentName", "problem": "missing"}, {"pointer": "/turn/agntName", "problem": "unknown"}]


async def refusal(url: str, client: str) -> BrokerError:
    with pytest.raises(BrokerError) as refused:
        if client == "async":
            async with Runtime(url, KEY, patient()) as runtime:
                await runtime.begin(TURN)
        else:
            with SyncRuntime(url, KEY, patient(1)) as runtime:
                await asyncio.to_thread(runtime.begin, TURN)
    return refused.value


@pytest.mark.parametrize("client", ["async", "sync"])
async def test_a_refused_request_says_which_of_its_members_are_wrong(client: str) -> None:
    body = {"code": "requestInvalid", "status": 400, "errors": PLACES}
    async with fake_broker(says(400, body, media="application/problem+json")) as fake:
        error = await refusal(fake.url, client)
    assert (Code.REQUEST_INVALID, tuple(PLACES)) == (error.code, error.errors)
    assert "/turn/agentName missing; /turn/agntName unknown" in str(error)


@pytest.mark.parametrize("client", ["async", "sync"])
async def test_a_refusal_says_what_the_broker_says(client: str) -> None:
    body = {"code": "scopeNotAllowed", "status": 403, "detail": "The scope x is not allowed here."}
    async with fake_broker(says(403, body, media="application/problem+json")) as fake:
        error = await refusal(fake.url, client)
    assert "The scope x is not allowed here." == error.message() == error.message("ko")


@pytest.mark.parametrize("detail", [None, 3, "", "a\x1b[2J", "a" * 4097])
async def test_a_sentence_that_is_none_is_left_out(detail: Any) -> None:
    body = {"code": "scopeNotAllowed", "status": 403, "detail": detail}
    async with fake_broker(says(403, body, media="application/problem+json")) as fake:
        error = await refusal(fake.url, "async")
    assert BrokerError(Code.SCOPE_NOT_ALLOWED).message() == error.message()


@pytest.mark.parametrize("errors", [None, 3, "text", [1], [{"pointer": "/a\x1b[2J", "problem": "type"}]])
async def test_places_that_are_none_are_left_out(errors: Any) -> None:
    body = {"code": "requestInvalid", "status": 400, "errors": errors}
    async with fake_broker(says(400, body, media="application/problem+json")) as fake:
        error = await refusal(fake.url, "async")
    assert Code.REQUEST_INVALID == error.code
    assert () == error.errors


@pytest.mark.parametrize("client", ["async", "sync"])
async def test_a_broker_that_cannot_be_reached_is_named_by_its_address(client: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    error = await refusal(url, client)
    assert (Code.BROKER_UNREACHABLE, True) == (error.code, f" ({url}) (no answer" in str(error))


@pytest.mark.parametrize(
    ("turn", "pointer"),
    [
        (Turn("", "i"), "/turn/agentName"),
        (Turn("planner", 3), "/turn/instanceKey"),  # type: ignore[arg-type]
        (Turn("planner", "i", locale="xx"), "/turn/locale"),
        (Turn("planner", "i", origin=3), "/turn/origin"),  # type: ignore[arg-type]
        (Turn("planner", "i", auth=3), "/turn/auth"),  # type: ignore[arg-type]
        (Turn("planner", "i", auth={"subject": {}}), "/turn/auth"),
        (Turn("planner", "i", auth={"subjects": {"usr": "x"}}), "/turn/auth/subjects"),
        ({"agentName": "planner"}, "/turn"),
        ({"agentName": "planner", "instanceKey": "i", "swarmRef": "one"}, "/turn/swarmRef"),
        ({"agentName": "", "instanceKey": "i"}, "/turn/agentName"),
    ],
)
async def test_a_turn_that_is_refused_here_names_its_wrong_member_as_the_broker_does(turn: Any, pointer: str) -> None:
    async with Runtime("http://127.0.0.1:1", KEY) as runtime:
        with pytest.raises(BrokerError) as refused:
            await runtime.begin(turn)
    assert ({"pointer": pointer, "problem": "value"},) == refused.value.errors
    assert f"({pointer.rpartition('/')[2]})" in str(refused.value)
