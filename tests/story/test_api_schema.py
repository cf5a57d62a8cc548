"""The document against a running server, by a stranger's hand: schemathesis makes requests that fit and requests that
do not, and checks each answer by what the document says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from oauthbroker.web.api.openapi import document
from tests.kit import forms
from tests.story.api.kit import strict
from tests.story.api_server import Served, api_server

pytestmark = pytest.mark.slow
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
    ignored_auth,
]
TOO_LARGE = {413, 414, 431}  # refusals that `negative_data_rejection` does not know
HOLDERS = {"runtimeKey": "runtime", "operatorKey": "operator", "turnToken": "turn"}
OPERATIONS = [f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods]


@schemathesis.serializer("application/x-ndjson")
def as_it_stands(_: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with api_server() as served:
        yield served


@pytest.mark.case("79", "82", "91")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_one_that_the_document_knows_and_no_secret_is_in_it(operation: str, served: Served) -> None:
    """Build the cases here: `schema.parametrize()` builds the cases of all operations when each worker collects. The short
    form calls every operation with fewer examples."""
    schema = schemathesis.openapi.from_dict(strict(document())).include(name=operation)
    [found] = schema.get_all_operations()
    assert isinstance(found, Ok), found
    validated = build_operation_test(
        config=schema.config, operation=found.ok(), test_func=_check, given_kwargs={}, feedback=FeedbackSources()
    )
    validated(served=served)


@hypothesis.settings(
    max_examples=25 if forms.is_long() else 5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def _check(case: Any, served: Served) -> None:
    _make_patient(case)
    for holder in _holders(case):
        headers = {"Authorization": f"Bearer {getattr(served, holder)}"} if holder else {}
        answer = case.call(base_url=served.url, headers=headers, timeout=60)
        is_line = case.media_type == "application/x-ndjson"  # a bad line is a count of the answer
        is_refused = answer.status_code in TOO_LARGE or _spoils_a_header(case) or is_line
        checks = [check for check in CHECKS if check is not negative_data_rejection or not is_refused]
        case.validate_response(answer, checks=checks, headers=headers)
        assert [] == served.canaries.search(_without_its_token(case, answer), f"{case.method} {case.path}")


def _spoils_a_header(case: Any) -> bool:
    """Return whether only the header was wrong. It is corrected above, so the request may be accepted."""
    if case.meta is None or not case.meta.is_negative_at(ParameterLocation.HEADER):
        return False
    return not any(case.meta.is_negative_at(place) for place in (ParameterLocation.PATH, ParameterLocation.BODY))


def _holders(case: Any) -> list[str]:
    """Return the callers that the document lets call this operation."""
    said = case.operation.definition.raw.get("security", [])
    return [HOLDERS[name] for each in said for name in each] or [""]


def _make_patient(case: Any) -> None:
    """Let a call that may wait for an event wait for none."""
    wait = str((case.query or {}).get("wait"))
    if wait.isdigit() and int(wait) <= 60:
        case.query["wait"] = 0


def _without_its_token(case: Any, answer: Any) -> bytes:
    """Return the answer without the access token of `ready`, the one secret that may be in it."""
    content: bytes = answer.content
    if case.path.startswith("/v1/tokens") and answer.status_code == 200:
        said = json.loads(content)
        said.pop("accessToken", None)
        content = json.dumps(said).encode()
    return content


def test_nothing_of_all_that_stands_in_the_log(served: Served) -> None:
    """Runs after the others when one process has them all; its own request makes it mean something alone too."""
    bearer, call = {"Authorization": f"Bearer {served.turn}"}, {"oauthAppRef": "OAuthApp/team"}
    assert 200 == httpx2.post(f"{served.url}/v1/tokens", json=call, headers=bearer, trust_env=False).status_code
    assert '"route": "/v1/tokens"' in served.log.getvalue()
    assert [] == served.canaries.search(served.log.getvalue(), "the broker's log")
    for secret in (served.runtime, served.operator, served.turn, served.link.rpartition("/")[2]):
        assert secret not in served.log.getvalue()
    assert '"fault"' not in served.log.getvalue()
