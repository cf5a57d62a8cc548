"""The models: strict, closed, and silent about their values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from oauthbroker.core.errors import Code
from oauthbroker.model.turn import Turn
from oauthbroker.testing import Canaries
from oauthbroker.web.api import request_models
from oauthbroker.web.api.call_table import OPERATIONS
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.handlers_turns import turn_of
from oauthbroker.web.api.openapi import described
from oauthbroker.web.api.request_parsing import LONGEST_BODY, MOST_BODIES, RequestInvalid, parsed

ALL = [kind for kind in vars(request_models).values() if isinstance(kind, type) and issubclass(kind, RequestModel)]
CONFIDENTIAL = {"accessToken", "lease", "handle", "channelCode"}
BODIES = {name: words.get("bodies", {}) for name, words in described()["operations"].items()}


def validated(model: type[Any], body: Any) -> Any:
    return parsed(model, json.dumps(body).encode())


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_a_model_is_closed_strict_frozen_and_quotes_nothing(model: type[BaseModel]) -> None:
    config = model.model_config
    assert ("forbid", True, True, True) == (
        config.get("extra"), config.get("strict"), config.get("frozen"), config.get("hide_input_in_errors"),
    )  # fmt: skip
    assert model.__doc__


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_a_field_with_a_secret_is_in_no_repr(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        if name in CONFIDENTIAL:
            assert "Secret" in str(field.annotation), f"{model.__name__}.{name}"


@pytest.mark.parametrize("model", [model for model in ALL if model.is_remembered], ids=lambda model: model.__name__)
def test_a_remembered_body_has_no_field_for_a_secret(model: type[RequestModel]) -> None:
    assert "Secret" not in str([field.annotation for field in model.model_fields.values()])


def test_the_last_bodies_are_parsed_once_and_an_invalid_one_each_time() -> None:
    asked, token_request = {"oauthAppRef": "mail"}, request_models.TokenRequest
    first = validated(token_request, asked)
    for number in range(MOST_BODIES - 1):
        validated(token_request, {"oauthAppRef": f"app{number}"})
    assert first is validated(token_request, asked), "used last, and not the oldest"
    for number in range(MOST_BODIES):
        with pytest.raises(RequestInvalid):
            validated(token_request, {"oauthAppRef": number})
    assert first is validated(token_request, asked), "an invalid one takes no place"
    for number in range(MOST_BODIES):
        validated(token_request, {"oauthAppRef": f"app{number}"})
    assert first is not validated(token_request, asked)
    long = {"oauthAppRef": "mail", "scopes": ["x" * LONGEST_BODY]}
    assert validated(token_request, long) is not validated(token_request, long)


def bodies() -> list[Any]:
    return [
        pytest.param(kind, body, id=f"{operation.id} {who}")
        for operation in OPERATIONS
        for kind, (who, body) in zip(operation.bodies, BODIES[operation.id].items(), strict=True)
    ]


@pytest.mark.parametrize("kind, body", bodies())
def test_a_body_is_read_as_it_stands_and_not_with_one_thing_more(
    kind: type[RequestModel], body: dict[str, Any]
) -> None:
    validated(kind, body)
    with pytest.raises(RequestInvalid) as refused:
        validated(kind, {**body, "subject_": "x"})
    assert refused.value.unknown
    assert refused.value.code is Code.REQUEST_INVALID
    assert [{"pointer": "", "problem": "unknown"}] == list(refused.value.errors)


@pytest.mark.case("90")
@pytest.mark.parametrize("kind, body", bodies())
def test_a_refusal_quotes_nothing_of_the_request(
    kind: type[RequestModel], body: dict[str, Any], canaries: Canaries
) -> None:
    secret = canaries.mint("misplaced").reveal()
    for spoilt in ({name: [secret] for name in body}, {secret: secret}, {**body, secret: {secret: secret}}):
        with pytest.raises(RequestInvalid) as refused:
            validated(kind, spoilt)
        canaries.look(refused.value, "a refusal")
        assert secret not in json.dumps(refused.value.errors)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None


def test_a_request_shows_no_token_where_it_is_printed() -> None:
    rejected = validated(request_models.RejectedToken, BODIES["reportRejected"]["turn"])
    assert "what-the-provider-refused" not in repr(rejected)


@pytest.mark.parametrize("length", [32 * 1024, 32 * 1024 + 1])
def test_a_token_that_is_sent_back_has_an_end(length: int) -> None:
    body = {"oauthAppRef": "mail", "accessToken": "x" * length}
    if length <= 32 * 1024:
        validated(request_models.RejectedToken, body)
    else:
        with pytest.raises(RequestInvalid) as refused:
            validated(request_models.RejectedToken, body)
        assert [{"pointer": "/accessToken", "problem": "value"}] == list(refused.value.errors)


@pytest.mark.parametrize(
    "subject, fits", [("a", True), ("", False), ("x" * 1024, True), ("x" * 1025, False), ("한" * 341, True), ("한" * 342, False)]
)  # fmt: skip
def test_a_subject_is_bounded_in_bytes(subject: str, fits: bool) -> None:
    body = {"handle": "x", "subject": subject}
    if fits:
        validated(request_models.ConfirmByRuntime, body)
    else:
        with pytest.raises(RequestInvalid):
            validated(request_models.ConfirmByRuntime, body)


@pytest.mark.parametrize(
    "swarm", ["Swarm/d", {"kind": "Swarm", "name": "d"}, {"kind": "Swarm", "name": "d", "apiVersion": "x/v1"}]
)
def test_a_turn_names_its_swarm_over_the_api_as_it_does_in_process(swarm: str | dict[str, str]) -> None:
    said = {"agentName": "planner", "instanceKey": "1", "swarmRef": swarm}
    assert Turn.from_json(said) == replace(turn_of(validated(request_models.TurnBody, said)), auth=None)


def test_a_hundred_refusals_of_a_call_make_its_schema_once() -> None:
    """It takes milliseconds to make, and who sends the wrong bodies decides how often."""
    made = []

    class Narrow(request_models.Narrow):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            made.append(cls)
            return super().model_json_schema(*args, **options)

    for number in range(100):
        with pytest.raises(RequestInvalid):
            validated(Narrow, {f"unknown{number}": 1})
    assert [Narrow] == made
