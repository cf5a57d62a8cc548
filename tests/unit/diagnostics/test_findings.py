"""Findings for an operator: lights and sentences, as pure functions of the observations."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oauthbroker.diagnostics import findings
from oauthbroker.diagnostics.findings import Finding, Sessions, Severity
from oauthbroker.diagnostics.forecast import AppFacts, Forecast, Outlook
from oauthbroker.events.port import Depth
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.registered_client import RegisteredClient
from tests.unit.diagnostics.kit import of_grants
from tests.unit.records.kit import grant

NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)
DAY = timedelta(days=1)
GRANT = GrantView.of(grant(scopes=("a",)), None, NOW)
APPS = {"slack-bot": AppFacts(scopes=("a",))}


@pytest.mark.parametrize(
    ("skews", "severity", "says"),
    [
        ([], "ok", "Not compared"),
        ([0.4, -0.9], "ok", "Fits the clocks of 2 answers."),
        ([30.0], "ok", "Fits"),
        ([31.0], "warning", "This machine's clock is 31 s behind."),
        ([-45.0, -44.0, -46.0], "warning", "is 45 s ahead."),
        ([0.1, 0.2, 9000.0], "ok", "Fits the clocks of 3 answers."),
    ],
)
def test_the_middle_one_of_the_providers_clocks_counts(skews: list[float], severity: Severity, says: str):
    found = findings.of_clock(skews)
    assert severity == found.severity
    assert says in found.text
    assert bool(found.hint) is (severity == "warning")


def key(name: str, expires: datetime | None) -> ApiKey:
    return ApiKey(
        locator=f"{name}-{expires}", name=name, roles=frozenset({"runtime"}), created_at=NOW - DAY, expires_at=expires
    )


@pytest.mark.parametrize(
    ("keys", "severities"),
    [
        ([], ["ok"]),
        ([key("a", None), key("b", NOW + 60 * DAY)], ["ok"]),
        ([key("a", NOW - DAY)], ["warning"]),
        ([key("a", NOW + 13 * DAY)], ["warning"]),
        ([key("a", NOW + 13 * DAY), key("a", None)], ["ok"]),
        ([key("a", NOW + 3 * DAY), key("a", NOW + 90 * DAY)], ["ok"]),
        ([key("a", NOW - DAY), key("a", NOW + DAY), key("b", NOW + DAY)], ["warning"] * 3),
    ],
)
def test_a_key_that_has_a_successor_is_no_cause_for_alarm(keys: list[ApiKey], severities: list[Severity]):
    assert severities == [it.severity for it in findings.of_api_keys(keys, NOW)]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, []),
        ({"replaced_at": NOW - timedelta(days=1)}, [("ok", "had forgotten our client")]),
        ({"replaced_at": NOW - timedelta(days=8)}, []),
        ({"refused_at": NOW - timedelta(days=8)}, [("warning", "refuses our client since")]),
        ({"looked_at": NOW - timedelta(days=1)}, []),
        ({"looked_at": NOW - timedelta(days=1), "client_id": "c", "scopes": ()}, [("ok", "is asked whether it still")]),
    ],
)
def test_clients_that_a_server_has_forgotten_are_reported(changes: dict[str, Any], said: list[Any]) -> None:
    place = {"url": "https://m.example", "issuer": "https://i.example", "redirect_uri": ""}
    client = RegisteredClient(app="tickets", **{"looked_at": NOW, **place, **changes})
    found = findings.of_clients([client], NOW)
    assert len(said) == len(found)
    assert all(severity == it.severity and words in it.text for (severity, words), it in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("sessions", "depth", "says"),
    [
        (Sessions(3, 0), Depth(2, 0, NOW - timedelta(minutes=59)), []),
        (Sessions(), Depth(0, 4, None), ["4 dead letters"]),
        (Sessions(), Depth(7, 0, NOW - timedelta(hours=5)), ["7 events wait, the oldest for 5 h."]),
        (Sessions(1, 2), Depth(), ["2 authorizations were begun and not ended."]),
    ],
)
def test_overdue_work_is_reported(sessions: Sessions, depth: Depth, says: list[str]):
    found = findings.of_work(sessions, depth, NOW, 0)
    warned = [it for it in found if it.severity == "warning"]
    assert len(says) == len(warned)
    assert all(text in it.text and it.hint for text, it in zip(says, warned, strict=True))
    assert "ok" == found[-1].severity


def test_events_that_no_consumer_takes_are_told_with_the_commands_that_show_them():
    dead, waiting, _ = findings.of_work(Sessions(), Depth(1, 1, NOW - timedelta(hours=5)), NOW, 0)
    assert ("`oauthbroker queues dead`" in dead.hint, "`oauthbroker queues list`" in waiting.hint) == (True, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ended": "dead"}, "the provider refuses to refresh"),
        ({"ended": "uncertain"}, "an answer was lost"),
        ({"ended": "quarantined"}, "of another account"),
        ({"lost": 1}, "whose refreshes fail"),
        ({"refused_at": NOW}, "whose refreshes fail"),
        ({"gives_no_time": True}, "so that no caller gets one"),
        (
            {"refused_at": NOW, "given_up": True},
            "that the provider refuses for long, in words of its own",
        ),
        ({"revoked": True, "revocation_pending": True}, "whose provider does not know yet"),
        ({"app": "gone", "revoked": True, "revocation_pending": True}, "this configuration cannot tell (1 of gone)"),
        ({"app": "gone"}, "of apps that are not configured (1 of gone)"),
    ],
)
def test_faults_of_grants_are_one_finding_for_each_kind(changes, says: str):
    [found, overview] = of_grants([replace(GRANT, **changes)], APPS)
    assert ("warning", "ok") == (found.severity, overview.severity)
    assert says in found.text
    assert found.hint


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        (("mine",), ["does not know yet"]),
        (("other",), ["cannot tell"]),
        (("mine", "other"), ["does not know yet", "cannot tell"]),
    ],
)
def test_a_grant_beside_tokens_of_another_client_says_who_can_tell(clients: tuple[str, ...], says: list[str]):
    apps = {name: replace(facts, registration="mine") for name, facts in APPS.items()}
    grant = replace(GRANT, registration="mine", revocation_pending=True, clients_to_tell=clients)
    found = of_grants([grant], apps)
    assert [True] * len(says) == [text in it.text for text, it in zip(says, found, strict=False)]
    assert len(says) + 1 == len(found)


def test_many_of_a_kind_are_counted_and_few_are_named():
    grants = [replace(GRANT, ended="dead", subject=f"subject-{number}") for number in range(9)]
    found = of_grants(grants, APPS)[0]
    assert found.text.startswith("9 grants that the provider refuses to refresh (9 of slack-bot): ")
    assert found.text.endswith(" and 6 more.")


def test_grants_that_are_well_are_counted():
    assert ["1 alive, 1 revoked."] == [it.text for it in of_grants([GRANT, replace(GRANT, revoked=True)], APPS)]


@pytest.mark.parametrize(("days", "certain", "severity"), [(5, True, "warning"), (5, False, "ok"), (20, True, "ok")])
def test_only_what_comes_soon_and_for_certain_is_a_warning(days: int, certain: bool, severity: Severity):
    reported = Forecast(
        (Outlook(app="mail", subject="alice", grant_id="sha256:0", when=NOW + days * DAY, why="age", certain=certain),),
        {},
    )
    [found] = findings.of_forecast(reported, NOW)
    assert severity == found.severity
    assert "doctor --forecast" in found.hint


def test_the_worst_light_is_the_overall_one():
    ok, warning, failure = (Finding("disk", severity, "x") for severity in findings.SEVERITIES)
    assert "ok" == findings.worst([])
    assert "warning" == findings.worst([ok, warning, ok])
    assert "failure" == findings.worst([failure, warning])
