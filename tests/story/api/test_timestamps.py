"""Times in answers: whole seconds, rounded down, as the specification prints them. At rest they keep microseconds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.audit.formatting import line_of
from oauthbroker.cli.grants.reading import newest_first
from oauthbroker.core.clock import from_iso, printed, to_iso
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.records.grant_summary import GrantSummary
from oauthbroker.records.grant_view import GrantView
from tests.kit import planted_records
from tests.kit.running_broker import ALICE, Harness, turn
from tests.kit.samples import NOW, grant_with, session_with
from tests.story.api.kit import Callers

WHOLE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LOOKS_LIKE_A_TIME = re.compile(r"\d{4}-\d\d-\d\dT")


def times_in(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(where, text) of everything that looks like a time."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from times_in(value, f"{path}.{name}")
    elif isinstance(data, list):
        for value in data:
            yield from times_in(value, f"{path}[]")
    elif isinstance(data, str) and LOOKS_LIKE_A_TIME.match(data):
        yield path, data


@pytest.mark.rule("12.5.2", "12.5.8")
async def test_every_time_in_an_answer_has_whole_seconds(harness: Harness, api: Callers) -> None:
    """The clock of the harness never shows a whole second."""
    assert harness.clock.now().microsecond
    await planted_records.dead_letter(harness, agent="planner")
    said: dict[str, Any] = {"turn": await api.begin()}
    holder, tool = api.holding(said["turn"]["turnToken"]), await api.tool()
    asked = await harness.ask("mail")
    assert isinstance(asked, AuthorizationRequired)
    said["asked"], said["asked embedded"] = (
        (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["ticket"])).json(),
        asked.to_json(),
    )
    said["pending"] = (await holder.get("/v1/turn/pending", allow=["ticket"])).json()
    said["links"] = (await holder.get("/v1/turn/links", allow=["ticket"])).json()
    said["embedded"] = await harness.broker.pending(turn())
    said["narrowed"] = (await holder.post("/v1/turn/narrow", {"ttlSeconds": 60}, allow=["turn token"])).json()
    said["page"] = (
        await api.runtime.post("/v1/connections", {"subjects": {"user": ALICE}}, allow=["connections link"])
    ).json()
    await harness.connect(asked)
    said["event"] = (await api.runtime.get("/v1/agents/planner/events?wait=2", allow=["lease"])).json()
    said["ready"] = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["access token"])).json()
    said["ready embedded"] = await harness.broker.oauth(turn()).getAccessToken({"oauthAppRef": "mail"})
    said["grants"] = (await api.operator.get("/v1/grants")).json()
    for path in ("/v1/queues", "/v1/agents/planner/dead-letters", "/v1/auth-sessions"):
        said[path] = (await api.operator.get(path)).json()
    [grant] = said["grants"]["grants"]
    said["grant record"] = (await api.operator.get(f"/v1/grants/{grant['grantId']}/record")).json()
    said["keys"] = [key.to_json() for key in await harness.broker.api_keys.list()]
    found = dict(times_in(said))
    assert set() == {name for name in said if not any(path.startswith(f".{name}") for path in found)}
    assert {} == {path: text for path, text in found.items() if not WHOLE.fullmatch(text)}


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_printed_time_is_never_later_and_never_a_second_earlier(moment: datetime) -> None:
    assert WHOLE.fullmatch(printed(moment))
    assert timedelta() <= moment - from_iso(printed(moment)) < timedelta(seconds=1)
    assert moment == from_iso(to_iso(moment))


EXACT = NOW + timedelta(microseconds=654_321)
EVENT = AgentEvent.about("as-1", "auth.granted", turn().resume_target, {}, EXACT)


@pytest.mark.parametrize(
    "record",
    [
        EVENT,
        replace(grant_with(created_at=EXACT, updated_at=EXACT), outbox=(EVENT,)),
        session_with(created_at=EXACT, expires_at=EXACT, status="failed", outbox=EVENT),
        ApiKey(
            locator="A" * 22,
            name="ci",
            roles=frozenset({"runtime"}),
            created_at=EXACT,
            expires_at=EXACT,
            secret_hash="0" * 64,
        ),
    ],
    ids=lambda record: type(record).__name__,
)
def test_at_rest_a_time_keeps_its_microseconds(record: AgentEvent | Grant | AuthSession | ApiKey) -> None:
    kept = record.to_plaintext()
    assert record == type(record).from_plaintext(kept)
    assert {".654321Z"} == {
        text[-8:] for _, text in times_in(json.loads(kept)) if text.startswith("2026-01-31T09:10:01")
    }


async def test_the_audit_log_keeps_the_exact_time(harness: Harness) -> None:
    await harness.connected("mail")
    assert harness.audit.lines
    assert all(to_iso(at) in line_of(entry, at) and at.microsecond for at, entry in harness.audit.lines)


def test_grants_of_the_same_second_are_listed_newest_first() -> None:
    """A list ordered by its printed times would fall back on their ids."""
    made = [
        grant_with(subject=f"acme:user:{number}", created_at=EXACT + timedelta(microseconds=number))
        for number in range(8)
    ]
    listed = [GrantSummary.of(GrantView.of(each, None, EXACT)) for each in made]
    assert 1 == len({summary.createdAt for summary in listed})
    assert [head.key for head in newest_first(list(map(GrantHead.of, made)))] == [each.key for each in reversed(made)]
    assert "created_at" not in listed[0].to_json()
