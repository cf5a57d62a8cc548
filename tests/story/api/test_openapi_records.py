"""What the code can answer, held against the document: every record, and every value of an enumeration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.client.tool_requests import AppInfo
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.health import Health
from oauthbroker.events.dead_letters import DeadLetter
from oauthbroker.events.port import QueueDepth
from oauthbroker.grants.found_records import Erased, FoundRecords
from oauthbroker.grants.import_requests import ImportProgress
from oauthbroker.model.apps import AppKind
from oauthbroker.model.token_results import AccountName, AuthorizationRequired, DevicePrompt, Failed, Ready
from oauthbroker.records import AuthSession, Grant, specification_form
from oauthbroker.records.grant_summary import GrantSummary
from oauthbroker.records.grant_view import GrantView
from oauthbroker.web.api.openapi import described, document, schema_of
from oauthbroker.web.gate.error_responses import problem
from tests.story.api.kit import validator
from tests.unit.records import kit

AT = datetime(2026, 2, 1, tzinfo=UTC)
FLOWS = ("authorization_code", "device_code", "client_credentials", "static_credential")
SCHEMAS: dict[str, Any] = document()["components"]["schemas"]
WORDS = {name for name, schema in SCHEMAS.items() if "enum" in schema}


def fits(schema: str, answer: Any) -> None:
    validator(schema_of(schema)).validate(json.loads(json.dumps(answer)))


kinds = st.sampled_from(get_args(AppKind))
recent = st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  (as hypothesis wants it)


@given(st.builds(replace, kit.sessions, kind=kinds, created_at=recent, expires_at=recent))
def test_every_session_prints_as_the_document_says(session: AuthSession) -> None:
    fits("SessionRecordBody", specification_form.session_record(session))


@pytest.mark.parametrize(
    "session",
    [kit.session(), kit.session(device=kit.device()), kit.session(kind="CredentialApp")],
    ids=["code", "device", "credential"],
)
def test_each_flow_of_a_session_has_its_schema_in_the_list_of_them(session: AuthSession) -> None:
    record = specification_form.session_record(session)
    fits("SessionRecordBody", record)
    assert (
        record["spec"]["flow"]["type"] in SCHEMAS["SessionRecordSpec"]["properties"]["flow"]["discriminator"]["mapping"]
    )


@given(
    st.builds(replace, kit.grants, flow=st.sampled_from(FLOWS), token=st.none(), created_at=recent, updated_at=recent)
    | st.builds(kit.grant, flow=st.sampled_from(FLOWS), account=kit.texts, revoked=st.booleans())
)
def test_every_grant_prints_as_the_document_says(grant: Grant) -> None:
    fits("GrantRecordBody", specification_form.grant_record(grant))
    fits("GrantBody", GrantSummary.of(GrantView.of(grant, None, AT)).to_json() | {"subject": "a"})


PROMPT = DevicePrompt(verification_uri="u", verification_uri_complete=None, user_code="c", interval=5)
COMPLETE = replace(PROMPT, verification_uri_complete="u")
REQUIRED = AuthorizationRequired(
    auth_session_id="as-AAAAAAAAAAAAAAAAAAAAAA", authorization_url="u", expires_at=AT, message="m", reason="noGrant"
)
FAILED = Failed(code=Code.APP_FORBIDDEN, message="m", retryable=False)
ACCOUNTS = (AccountName("work"), AccountName("home", label="l", identity="i", name="n"))
READY = Ready(access_token=Secret("of-a-test"), token_type="Bearer", scopes=("a",), expires_at=None)
WRONG = BrokerError(Code.REQUEST_INVALID, retry_after_seconds=3)
WRONG.errors = tuple({"pointer": "/a", "problem": each} for each in SCHEMAS["FieldFault"]["enum"])
QUEUE: dict[str, Any] = {"agent": "a", "waiting": 1, "leased": 2, "dead": 3}
LETTER: dict[str, Any] = {"id": "e", "agent": "a", "attempts": 1}
ANSWERS = {
    "TokenResult": [
        READY.to_json(),
        replace(READY, expires_at=AT, degraded=True, provider_data={"a": 1, "b": True, "c": "d"}).to_json(),
        REQUIRED.to_json(),
        replace(REQUIRED, device_code=PROMPT).to_json(),
        *(replace(REQUIRED, reason=reason, device_code=COMPLETE).to_json() for reason in SCHEMAS["Reason"]["enum"]),
        FAILED.to_json(),
        *(replace(FAILED, code=code, retry_after_seconds=1, accounts=ACCOUNTS).to_json() for code in Code),
    ],
    "ErasedBody": [Erased(True, FoundRecords(subject="s")).to_json()],
    "ImportedBody": [ImportProgress(until="").answer()],
    "QueueBody": [QueueDepth(**QUEUE).to_json(), QueueDepth(**QUEUE, oldest=AT).to_json()],
    "DeadLetterBody": [
        DeadLetter(**LETTER, swarm="", instance="").to_json(),
        *(
            DeadLetter(**LETTER, swarm="S/s", instance="i", type="t", app="x", kind=kind, made=AT).to_json()
            for kind in get_args(AppKind)
        ),
    ],
    "HealthBody": [Health().to_json(), Health(("storeUnavailable",)).to_json()],
    "Problem": [
        *(json.loads(bytes(problem(BrokerError(code)).body)) for code in Code),
        json.loads(bytes(problem(WRONG).body)),
    ],
}


@pytest.mark.parametrize("schema", ANSWERS)
def test_the_least_and_the_most_that_an_answer_holds_fit_its_schema(schema: str) -> None:
    for answer in ANSWERS[schema]:
        fits(schema, answer)


def test_every_member_of_a_grant_and_an_app_is_in_its_schema() -> None:
    assert set(GrantSummary.__slots__) - {"created_at"} == SCHEMAS["GrantBody"]["properties"].keys()
    spelt = {name.replace("_m", "M") for name in AppInfo.__slots__}
    assert spelt == SCHEMAS["AppBody"]["properties"].keys()


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas of objects within a schema, without its references."""
    if isinstance(schema, list):
        for part in schema:
            yield from objects(part)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for part in schema.values():
            yield from objects(part)


SENT = set(SCHEMAS) - set(described()["schemas"]) - WORDS


def test_no_answer_is_closed_and_every_request_is() -> None:
    """docs/compatibility.md promises that answers may get new members, and no unknown one is taken in a request."""
    for name in described()["schemas"]:
        for each in objects(SCHEMAS[name]):
            assert "additionalProperties" not in each, name
    for name in SENT:
        for each in objects(SCHEMAS[name]):
            assert each["additionalProperties"] is False, name


def test_no_answer_refers_to_the_closed_schema_of_a_request() -> None:
    for name in described()["schemas"]:
        for of_request in SENT:
            assert f'schemas/{of_request}"' not in json.dumps(SCHEMAS[name]), (name, of_request)


def test_no_member_of_a_request_has_a_default_which_generators_take_for_required() -> None:
    for name in SENT:
        for each in objects(SCHEMAS[name]):
            for member, said in each["properties"].items():
                assert "default" not in said, f"{name}.{member}: its description says the default"
    for methods in document()["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                assert "default" not in parameter["schema"], parameter["name"]


def test_every_enumeration_of_an_answer_is_the_codes_own_and_says_that_it_grows() -> None:
    for name in WORDS:
        assert "later version" in SCHEMAS[name]["description"]
    written = [
        (name, member)
        for name in described()["schemas"]
        for member, said in SCHEMAS[name].get("properties", {}).items()
        if "enum" in said and "later version" not in said["description"]
    ]
    assert not written
