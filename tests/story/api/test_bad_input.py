"""Wrong requests: subjects, junk, too much of it, to the wrong host, and the same thing twice."""

from __future__ import annotations

import gzip
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from oauthbroker.audit import CallRefused
from oauthbroker.core.words import SENTENCES
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.api.call_table import OPERATIONS, Operation
from tests.kit.running_broker import ALICE, BASE, BOB, Harness, running, user_app
from tests.story.api.kit import BODIES, TOOLS, Answer, Caller, Callers

FOR_TURNS = [operation for operation in OPERATIONS if {"turn", "wholeTurn"} & set(operation.who)]
WRITABLE = [operation for operation in FOR_TURNS if "turn" in BODIES[operation.id]]
SUBJECT_NAMES = ["subject", "subjects", "user", "userId", "tenant", "actor", "auth", "turn", "agentName", "onBehalfOf"]
TURN = {"agentName": "planner", "instanceKey": "1"}
WITH_BODY = [operation for operation in OPERATIONS if operation.bodies]


def path_of(operation: Operation) -> str:
    return operation.path.replace("{id}", f"as-{'A' * 22}").format(agent="planner", eventId="evt-1")


def refusals(harness: Harness) -> list[CallRefused]:
    return [entry for entry in harness.audit.entries if isinstance(entry, CallRefused)]


async def test_a_wrong_reference_and_scopes_that_are_a_text_are_refused_with_their_right_form(api: Callers) -> None:
    tool = await api.turn()
    for body, word, pointer in (
        ({"oauthAppRef": "mail", "scopes": "read"}, "notScopes", "/scopes"),
        ({"oauthAppRef": "OauthApp/mail"}, "appReference", "/oauthAppRef"),
        ({"oauthAppRef": 3}, "appReference", "/oauthAppRef"),
    ):
        said = (await tool.post("/v1/tokens", body)).json()
        assert ("requestInvalid", SENTENCES["en"]["hints"][word]) == (said["code"], said["detail"])
        assert all(each["pointer"].startswith(pointer) for each in said["errors"])


async def test_a_tool_that_the_bundle_lacks_is_named_to_the_runtime_with_the_nearest(api: Callers) -> None:
    answer = await api.runtime.post("/v1/turns", {"turn": TURN, "tools": {"Tool/mial": None}})
    assert answer.json()["detail"].startswith("The bundle declares no Tool/mial. Did you mean Tool/mail?")


@pytest.mark.parametrize(
    ("tools", "detail", "pointer"),
    [
        ({"Tool/mail": [{"oauthAppRef": 5}]}, "", "/tools/Tool~1mail/0/oauthAppRef"),
        ({"Tool/ok": [], "Tool/mail": 5}, "", "/tools/Tool~1mail"),
        ({"Tool/mail": [{"oauthAppRef": "mail"}, {"oauthAppRef": "x", "y": 1}]}, "", "/tools/Tool~1mail/1"),
        ({"Tool/mail": [{"oauthAppRef": "mail"}, {"oauthAppRef": "mail"}]}, "one app twice", "/tools/Tool~1mail/1"),
        ({"Tool/mail": [{"oauthAppRef": "mial"}]}, "called mial. Did you mean mail?", "/tools/Tool~1mail/0"),
        ({"Tool/mail": [{"oauthAppRef": "mail", "scopes": ["nope"]}]}, "The scope nope", "/tools/Tool~1mail/0"),
        ({"Tool/mail": [{"oauthAppRef": "mail@work"}]}, "without @account", "/tools/Tool~1mail/0"),
        ({"Tool/ok": None, "no tool at all": None}, "Entry 2 of `tools`", "/tools"),
    ],
)
async def test_a_wrong_entry_of_tools_is_named_to_the_runtime(
    api: Callers, tools: dict[str, Any], detail: str, pointer: str
) -> None:
    said = (await api.runtime.post("/v1/turns", {"turn": TURN, "tools": tools})).json()
    assert detail in said["detail"]
    assert {pointer} == {each["pointer"] for each in said["errors"]}


@pytest.mark.case("81")
@pytest.mark.parametrize("name", SUBJECT_NAMES)
@pytest.mark.parametrize("operation", WRITABLE, ids=lambda operation: operation.id)
async def test_a_tool_that_names_a_subject_is_refused_and_written_down(
    harness: Harness, api: Callers, operation: Operation, name: str
) -> None:
    tool = await api.tool()
    for value in (BOB, {"user": BOB}, None):
        answer = await tool.post(path_of(operation), {**BODIES[operation.id]["turn"], name: value})
        assert (400, "requestInvalid") == (answer.status, answer.code)
        assert [{"pointer": "", "problem": "unknown"}] == answer.json()["errors"]
        assert BOB not in answer.text
    reported = refusals(harness)
    assert 3 * [(f"POST {operation.path}", "requestInvalid", "planner", "Tool/mail")] == [
        (entry.route, entry.code, entry.agent, entry.tool) for entry in reported
    ]
    assert BOB not in repr(reported)


@pytest.mark.case("81")
@pytest.mark.parametrize("where", ["oauthAppRef", "apps"])
async def test_no_depth_hides_a_subject(harness: Harness, api: Callers, where: str) -> None:
    tool = await api.tool()
    if where == "oauthAppRef":
        body: Any = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail", "subject": BOB}}
        answer = await tool.post("/v1/tokens", body)
        assert "/oauthAppRef" in {each["pointer"] for each in answer.json()["errors"]}
    else:
        answer = await tool.post("/v1/turn/narrow", {"apps": [{"oauthAppRef": "mail", "subject": BOB}]})
        assert [{"pointer": "/apps/0", "problem": "unknown"}] == answer.json()["errors"]
    assert (400, "requestInvalid", 1) == (answer.status, answer.code, len(refusals(harness)))


@pytest.mark.case("81")
@pytest.mark.parametrize("operation", FOR_TURNS, ids=lambda operation: operation.id)
async def test_a_subject_in_the_query_or_a_header_is_ignored(
    harness: Harness, api: Callers, operation: Operation
) -> None:
    turn = await api.turn()
    body = json.dumps(BODIES.get(operation.id, {}).get("turn")).encode()
    answer = await turn.send(operation.method, f"{path_of(operation)}?subject=x", body=body)
    assert (400, "requestInvalid") == (answer.status, answer.code)
    assert 1 == len(refusals(harness))


@pytest.mark.case("81")
async def test_headers_and_cookies_choose_no_subject(harness: Harness, api: Callers) -> None:
    await harness.connected()
    bob = await api.tool(user=BOB)
    headers = {"x-subject": "idp:user:U234567", "x-forwarded-user": "idp:user:U234567", "cookie": "subject=alice"}
    answer = await bob.post("/v1/tokens", {"oauthAppRef": "mail"}, headers=headers, allow=["ticket"])
    assert "authorization_required" == answer.json()["status"]


@pytest.mark.case("81")
@examples(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra=st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | st.text(), min_size=1, max_size=3))
async def test_no_extra_field_is_ever_taken(harness: Harness, api: Callers, extra: dict[str, Any]) -> None:
    known = {"oauthAppRef", "scopes", "minTtlSeconds", "switchAccount"}
    extra = {name: value for name, value in extra.items() if name not in known} or {"x": None}
    answer = await (await api.tool()).post("/v1/tokens", {"oauthAppRef": "mail", **extra})
    assert (400, "requestInvalid") == (answer.status, answer.code)


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a text": b'"text"',
    "null": b"null",
    "twice the same name": b'{"oauthAppRef":"mail","oauthAppRef":"team"}',
    "NaN": b'{"oauthAppRef":"mail","minTtlSeconds":NaN}',
    "infinite": b'{"oauthAppRef":"mail","minTtlSeconds":1e999}',
    "60 thousand brackets": b"[" * 60_000,
    "nested objects": b'{"a":' * 10_000,
    "not UTF-8": b'{"oauthAppRef":"\xff"}',
    "UTF-16": '{"oauthAppRef":"mail"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"oauthAppRef":"mail"}',
    "half an emoji": b'{"oauthAppRef":"\\ud83d"}',
    "a number as the app": b'{"oauthAppRef":1}',
    "a number for a boolean": b'{"oauthAppRef":"mail","switchAccount":1}',
    "a boolean for a number": b'{"oauthAppRef":"mail","minTtlSeconds":true}',
    "a text for a number": b'{"oauthAppRef":"mail","minTtlSeconds":"60"}',
    "a fraction": b'{"oauthAppRef":"mail","minTtlSeconds":0.5}',
    "less than nothing": b'{"oauthAppRef":"mail","minTtlSeconds":-1}',
    "a number of 60 thousand digits": b'{"oauthAppRef":"mail","minTtlSeconds":' + b"9" * 60_000 + b"}",
    "a text for a list": b'{"oauthAppRef":"mail","scopes":"read"}',
    "a number for a scope": b'{"oauthAppRef":"mail","scopes":[1]}',
    "another kind": b'{"oauthAppRef":{"kind":"Secret","name":"mail"}}',
    "another kind in text": b'{"oauthAppRef":"Secret/mail"}',
    "no name": b'{"oauthAppRef":""}',
    "no app": b"{}",
    "two texts": b'{"oauthAppRef":"mail"}{"oauthAppRef":"mail"}',
}


@pytest.mark.case("82")
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_refused_without_quoting_it(harness: Harness, api: Callers, body: bytes) -> None:
    tool = await api.tool()
    begun = time.process_time()
    answer = await tool.send("POST", "/v1/tokens", body=body)
    assert time.process_time() - begun < 1
    assert (400, "requestInvalid") == (answer.status, answer.code)
    assert "application/problem+json" == answer.headers["content-type"]
    for each in answer.json().get("errors", ()):
        assert {"pointer", "problem"} == set(each)


@pytest.mark.parametrize(
    "agent, subject, sentence",
    [("planner", "x" * 1_025, "A subject is a text"), ("planner", "", "A subject is a text"),
     ("a/b", BOB, "An agent's name is"), ("..", BOB, "An agent's name is"), ("x" * 257, BOB, "An agent's name is")],
)  # fmt: skip
async def test_a_wrong_subject_or_agent_has_the_sentence_of_the_embedded_call(
    api: Callers, agent: str, subject: str, sentence: str
) -> None:
    turn = {"agentName": agent, "instanceKey": "thread", "auth": {"subjects": {"user": subject}}}
    answer = await api.runtime.post("/v1/turns", {"turn": turn})
    assert (400, "requestInvalid", True) == (answer.status, answer.code, sentence in answer.text)


@pytest.mark.parametrize("subject", ["", "x" * 1_025, 5])
async def test_each_call_that_takes_a_subject_has_one_sentence_for_a_wrong_one(api: Callers, subject: object) -> None:
    answers = [
        await api.runtime.post("/v1/connections", {"subjects": {"user": subject}}),
        await api.runtime.post("/v1/connections", {"subjects": {"global": subject, "user": subject}}),
        await api.runtime.post("/v1/auth-sessions/confirm", {"handle": "handle", "subject": subject}),
        await api.operator.post("/v1/subjects/erase", {"subject": subject}),
    ]
    assert {(400, True)} == {(each.status, "a text of 1 to 1024 bytes" in each.text) for each in answers}


async def test_each_call_that_takes_an_agent_in_its_path_has_its_sentence(api: Callers) -> None:
    agent = "x" * 257
    answers = [
        await api.runtime.get(f"/v1/agents/{agent}/events"),
        await api.operator.get(f"/v1/agents/{agent}/dead-letters"),
    ]
    assert {(400, True)} == {(each.status, "An agent's name is a text" in each.text) for each in answers}


@pytest.mark.parametrize("body", ['{"subjects":{"user":"\\ud800"}}', "{", '{"a":1,"a":1}', "[]", '{"a":NaN}'])
async def test_a_body_that_is_not_strict_json_is_told_what_such_a_body_is(api: Callers, body: str) -> None:
    for path in ("/v1/connections", "/v1/turns"):
        answer = await api.runtime.send("POST", path, body=body.encode())
        assert (400, True) == (answer.status, "The body is no JSON object of one meaning" in answer.text)


@pytest.mark.case("82")
async def test_a_pointer_leads_to_the_field_and_repeats_nothing(harness: Harness, api: Callers) -> None:
    """A secret in the wrong place, or used as a name, is not sent back or logged."""
    secret = "hunter2-hunter2-hunter2"
    body = {"turn": {"agentName": 1, "auth": {"subjects": {"user": "", secret: secret}}}, "tools": {secret: 1}}
    answer = await api.runtime.post("/v1/turns", body)
    found = {(each["pointer"], each["problem"]) for each in answer.json()["errors"]}
    assert {
        ("/turn/agentName", "type"),
        ("/turn/instanceKey", "missing"),
        ("/turn/auth/subjects/user", "value"),
        ("/turn/auth/subjects", "unknown"),
    } <= found
    assert secret not in answer.text
    assert secret not in harness.log.getvalue()


@pytest.mark.parametrize(
    ("body", "place", "meant"),
    [
        ({"turn": {**TURN, "auth": {"subjects": {"usr": ALICE}}}, "tools": {}}, "/turn/auth/subjects", "user"),
        ({"turn": {"agentNme": "planner", "instanceKey": "1"}, "tools": {}}, "/turn", "agentName"),
        ({"trun": TURN, "tools": {}}, "/", "turn"),
        ({"turn": TURN, "tools": {}, "quite-another": 1}, "", ""),
    ],
)
async def test_a_misspelt_field_is_answered_with_the_one_that_was_meant(
    api: Callers, body: Any, place: str, meant: str
) -> None:
    detail = (await api.runtime.post("/v1/turns", body)).json()["detail"]
    assert (f"`{place}` that does not exist there. Did you mean {meant}?" in detail) is bool(meant), detail


@pytest.mark.case("82")
@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "application/json; charset=utf-16"]
)  # fmt: skip
@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.id)
async def test_a_body_is_labelled_as_json(api: Callers, operation: Operation, kind: str | None) -> None:
    known = {"runtime": api.runtime, "operator": api.operator}
    caller = next((known[who] for who in BODIES[operation.id] if who in known), None) or await api.turn()
    answer = await caller.send("POST", path_of(operation), body=b"{}", kind=kind)
    assert (415, "unsupportedMediaType") == (answer.status, answer.code)


@pytest.mark.case("82")
@pytest.mark.parametrize("path", ["/v1/tokens", "/v1/grants", "/connections/end", "/v1/none"])
@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
async def test_a_compressed_body_is_refused_wherever_one_is_read(api: Callers, path: str, coding: str) -> None:
    """Read as it stands it would be no JSON, or 64 MiB of lines that are all wrong."""
    answer = await api.operator.send("POST", path, body=gzip.compress(b"{}"), headers={"content-encoding": coding})
    assert (415, "unsupportedMediaType") == (answer.status, answer.code)
    assert "Content-Encoding" in answer.json()["detail"]


@pytest.mark.case("82")
async def test_the_coding_identity_is_none(api: Callers) -> None:
    tool = await api.tool("Tool/idle")
    answer = await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, headers={"content-encoding": "Identity"})
    assert (200, "appForbidden") == (answer.status, answer.code)


@pytest.mark.parametrize(
    "path, body, wanted, pointer",
    [
        ("/v1/tokens", {"oauthAppRef": "mail", "minTTLSeconds": 60}, "Did you mean minTtlSeconds?", ""),
        ("/v1/tokens", {"oauthAppRef": "CredentialApp/mail"}, "mail is of the kind OAuthApp", "/oauthAppRef"),
        ("/v1/turn/narrow", {"apps": [{"oauthAppRef": "mail"}, {"oauthAppRef": "mail"}]}, "once", "/apps"),
        ("/v1/turn/pending?links=apart&links=apart", None, "(links)", "/links"),
    ],
)
async def test_a_wrong_member_is_named_with_its_right_form(
    api: Callers, path: str, body: Any, wanted: str, pointer: str
) -> None:
    turn = await api.turn()
    answer = await (turn.get(path) if body is None else turn.post(path, body))
    said = answer.json()
    said = said.get("error", said)
    assert ("requestInvalid", True) == (said["code"], wanted in (said.get("detail") or said["message"]))
    if "errors" in said:
        assert [pointer] == [each["pointer"] for each in said["errors"]]


@pytest.mark.parametrize("ttl", [0, 3601, 86_401])
async def test_a_turn_that_would_last_too_long_is_told_the_most(api: Callers, ttl: int) -> None:
    answer = await api.runtime.post("/v1/turns", {**BODIES["beginTurn"]["runtime"], "tools": {}, "ttlSeconds": ttl})
    assert (400, [{"pointer": "/ttlSeconds", "problem": "value"}]) == (answer.status, answer.json()["errors"])
    assert ttl != 3601 or "from 1 to 3600" in answer.json()["detail"]


async def test_a_number_out_of_range_is_named_as_such(api: Callers) -> None:
    tool = await api.tool()
    answer = await tool.send("POST", "/v1/tokens", body=b'{"oauthAppRef":"mail","minTtlSeconds":1e400}')
    assert (400, True) == (answer.status, "a number out of range" in answer.json()["detail"])


@pytest.mark.case("82")
async def test_a_body_with_a_charset_or_capitals_is_still_json(api: Callers) -> None:
    tool = await api.tool("Tool/idle")
    for kind in ("application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/json;"):
        answer = await tool.send("POST", "/v1/tokens", body=b'{"oauthAppRef":"mail"}', kind=kind)
        assert (200, "appForbidden") == (answer.status, answer.code)


@pytest.mark.case("82")
@pytest.mark.parametrize("announced", [True, False])
async def test_too_much_is_refused_while_it_comes_in(api: Callers, announced: bool) -> None:
    tool, chunk = await api.tool(), b"x" * 16 * 1024
    headers = {"content-length": str(len(chunk) * 100)} if announced else {"transfer-encoding": "chunked"}
    answer = await tool.send("POST", "/v1/tokens", body=[chunk] * 100, headers=headers)
    assert (413, "requestTooLarge") == (answer.status, answer.code)


@pytest.mark.case("79", "82")
async def test_nothing_of_a_strangers_body_is_read(harness: Harness, api: Callers) -> None:
    """Authentication comes first, and so do the caller's rights: what follows costs nothing."""
    unread = [b"x"] * 1000
    for caller, status in ((api.stranger, 401), (await api.turn(), 403)):
        body = list(unread)
        answer = await Watched(caller.harness, caller.bearer).send("POST", "/v1/turns", body=body)
        assert status == answer.status
        assert 0 == Watched.read


class Watched(Caller):
    """Counts how often the body was asked for."""

    read = 0

    async def _run(self, exchange: Any, method: str, path: str, **more: Any) -> None:
        web = self.harness.broker.asgi.app

        async def watching(scope: Any, receive: Any, send: Any) -> None:
            async def counted() -> Any:
                type(self).read += 1
                return await receive()

            type(self).read = 0
            await web(scope, counted, send)

        object.__setattr__(self, "harness", _Harness(self.harness, watching))
        await super()._run(exchange, method, path, **more)


class _Harness:
    """The harness with another front listener."""

    def __init__(self, harness: Harness, web: Any) -> None:
        self.origin = harness.origin
        self.broker = type("Broker", (), {"asgi": SimpleNamespace(app=web)})


@pytest.mark.case("85")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8421", "127.0.0.1:8420.evil.example", ""])
async def test_a_foreign_host_gets_nothing_and_no_address_is_made_of_it(api: Callers, host: str) -> None:
    tool = await api.tool()
    answer = await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, host=host or " ")
    assert (421, "hostNotAllowed") == (answer.status, answer.code)
    assert "evil" not in answer.text
    document = await api.stranger.get("/v1/openapi.json")
    assert "evil" not in document.text


@pytest.mark.case("85")
async def test_links_are_built_from_the_public_address_under_any_header(api: Callers) -> None:
    tool = await api.tool()
    headers = {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example", "x-forwarded-proto": "gopher"}
    answer = await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, headers=headers, allow=["ticket"])
    assert answer.json()["authorizationUrl"].startswith(f"{BASE}/connect/")


@pytest.mark.parametrize("method, path, allowed", [
    ("PUT", "/v1/tokens", {"POST"}), ("HEAD", "/v1/apps", {"GET"}), ("GET", "/v1/turns", {"POST"}),
    ("POST", f"/v1/auth-sessions/as-{'A' * 22}", {"GET", "DELETE"}), ("TRACE", "/v1/openapi.json", {"GET"}),
])  # fmt: skip
async def test_a_method_that_is_none_is_told_which_there_are(
    api: Callers, method: str, path: str, allowed: set[str]
) -> None:
    answer = await api.runtime.send(method, path)
    assert (405, method == "HEAD" or "methodNotAllowed") == (answer.status, method == "HEAD" or answer.code)
    assert allowed == set(answer.headers["allow"].replace(" ", "").split(","))


async def test_a_problem_speaks_the_callers_language_and_is_json_for_browsers_too(api: Callers) -> None:
    headers = {"accept-language": "ko-KR,ko;q=0.9", "accept": "text/html"}
    answer = await api.stranger.get("/v1/apps", headers=headers)
    assert ("ko", "application/problem+json") == (answer.headers["content-language"], answer.headers["content-type"])
    assert "호출자" in answer.json()["detail"]


@pytest.mark.parametrize(
    "query", ["wait=-1", "wait=61", "wait=x", "wait=1.5", "wait=1&wait=2", "wait=", "unknown=1", "wait=9e9"]
)
async def test_a_query_is_read_as_strictly(api: Callers, query: str) -> None:
    answer = await api.runtime.get(f"/v1/agents/planner/events?{query}")
    assert (400, "requestInvalid") == (answer.status, answer.code)


@pytest.fixture
async def busy(identity_provider: IdentityProvider, test_clock: TestClock) -> Any:
    settings = Settings(
        public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=Limits(requests_per_minute=60)
    )
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, tools=TOOLS, settings=settings
    ) as harness:
        yield harness


@pytest.mark.case("99")
async def test_who_calls_too_often_is_told_when_to_come_back_and_others_are_served(busy: Harness) -> None:
    api = await Callers.of(busy)
    tool, other = await api.tool("Tool/idle"), await api.tool("Tool/idle")
    answers: list[Answer] = [await tool.get("/v1/apps") for _ in range(12)]
    assert [200] * 10 + [429] * 2 == [answer.status for answer in answers]
    assert ("rateLimited", True, "1") == (
        answers[-1].code, answers[-1].json()["retryable"], answers[-1].headers["retry-after"],
    )  # fmt: skip
    assert 200 == (await other.get("/v1/apps")).status
    busy.clock.advance(1)
    assert 200 == (await tool.get("/v1/apps")).status


@pytest.mark.case("99")
async def test_a_strangers_failures_do_not_lock_out_known_callers(busy: Harness) -> None:
    api = await Callers.of(busy)
    statuses = [(await api.stranger.get("/v1/apps")).status for _ in range(30)]
    assert {401, 429} == set(statuses)
    assert [429] * 5 == statuses[-5:]
    assert 200 == (await api.runtime.get("/v1/apps")).status, "from the same address"
    elsewhere = Caller(busy, None, client=("10.0.0.9", 1))
    assert 401 == (await elsewhere.get("/v1/apps")).status
    busy.clock.advance(60)
    assert 401 == (await api.stranger.get("/v1/apps")).status


@pytest.mark.case("99", "79")
async def test_tokens_of_turns_that_are_over_cost_their_neighbours_nothing(busy: Harness) -> None:
    """Behind one address many tools have tokens of turns that end: none of them is a stranger."""
    api = await Callers.of(busy)
    for _ in range(4):
        begun = await api.begin()
        late = api.holding(begun["toolTokens"]["Tool/idle"])
        assert 204 == (await api.runtime.delete(f"/v1/turns/{begun['turnId']}")).status
        statuses = [(await late.get("/v1/apps")).status for _ in range(12)]
        assert [401] * 10 + [429] * 2 == statuses, "a turn that is over has its own limit"
        busy.clock.advance(2)
    assert "unauthenticated" == (await api.stranger.get("/v1/apps")).code


async def test_a_settled_or_ended_event_is_not_settled_again(harness: Harness, api: Callers) -> None:
    await harness.connect(await harness.ask_link())
    leased = (await api.runtime.get("/v1/agents/planner/events?wait=5")).json()
    path = f"/v1/agents/planner/events/{leased['event']['eventId']}"
    body = {"lease": leased["lease"]}
    assert [204, 204] == [(await api.runtime.post(f"{path}/ack", body)).status for _ in range(2)], "the answer was lost"
    for action, lease in (("nack", body), ("ack", {"lease": "another"})):
        again = await api.runtime.post(f"{path}/{action}", lease)
        assert (409, "leaseLost") == (again.status, again.code)
    unknown = await api.runtime.post("/v1/agents/nobody/events/evt-x/ack", {"lease": "x"})
    assert again.body == unknown.body or "leaseLost" == unknown.code
