"""A CredentialApp whose values the configuration holds: a team's key from the environment or the secret store, and no link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.config.bundle.resolving import resolve
from oauthbroker.config.problems.problems import ConfigInvalidError
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import Owner
from oauthbroker.model.static_credential import packed
from oauthbroker.model.token_results import Failed
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn
from tests.story.keys_kit import GOOD, KeyApi, key_app, sent
from tests.unit.config.bundles import BROKER, HEAD, problems_in, write

APP = (
    HEAD
    + """kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: global
  fields: {apiKey: {title: API key, pattern: "[a-z0-9-]+"}}
  values: {apiKey: {valueFrom: {env: METER_KEY}}}
  inject: {headers: {X-Api-Key: "{apiKey}"}}
  api: {hosts: [api.example.com]}
"""
)


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    """`meter` is the team's; `mine` is a user's, with the team's from the configuration to fall back to."""
    team, mine = key_app(api, subject_mode="global", owner=Owner()), key_app(api, "mine", team_fallback=True)
    apps = [replace(app, credential=replace(app.credential, values=packed({"apiKey": GOOD}))) for app in (team, mine)]  # type: ignore[type-var]
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        yield harness


async def test_the_teams_key_is_injected_without_a_link_or_a_record(harness: Harness, api: KeyApi) -> None:
    for _ in range(3):
        assert 200 == (await sent(harness, api)).status_code
    assert GOOD == api.seen[-1].headers["x-api-key"]
    assert [] == [it async for it in harness.broker.grants.list()]
    assert {"TokenInjected"} <= {type(entry).__name__ for _, entry in harness.audit.lines}
    assert GOOD not in repr(harness.audit.lines)


@pytest.mark.case("152")
async def test_a_token_call_hands_it_out_no_more_than_another_one(harness: Harness) -> None:
    result = await harness.ask("meter")
    assert isinstance(result, Failed)
    assert Code.REQUEST_INVALID is result.code


async def test_a_turn_without_the_team_gets_none(harness: Harness, api: KeyApi) -> None:
    result = await sent(harness, api, of=turn(team=None))
    assert isinstance(result, Failed)
    assert Code.SUBJECT_UNAVAILABLE is result.code


async def test_a_refused_key_is_the_answer_and_asks_no_person(harness: Harness, api: KeyApi) -> None:
    del api.keys[GOOD]
    assert 401 == (await sent(harness, api)).status_code
    assert 401 == (await sent(harness, api)).status_code


async def test_a_user_without_a_key_falls_back_to_it(harness: Harness, api: KeyApi) -> None:
    answer = await sent(harness, api, app="mine")
    assert (200, "team") == (answer.status_code, answer.headers["oauthbroker-credential"])
    assert [] == [*await harness.broker.sessions.list()], "no person was asked"
    assert 200 == (await sent(harness, api, app="mine", of=turn(team=None))).status_code


def test_the_values_are_read_with_the_others(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, broker=BROKER, app=APP))
    assert {"METER_KEY"} <= loaded.env_names
    credential = resolve(loaded, {"METER_KEY": "abc-1"}, {}).apps["meter"].credential
    assert credential is not None
    assert packed({"apiKey": "abc-1"}) == credential.values
    assert "abc-1" not in repr(credential)


@pytest.mark.parametrize("value", ["ABC", "a b", "a\u00e9"])
def test_a_value_of_another_form_is_a_problem_with_its_place(tmp_path: Path, value: str) -> None:
    loaded = load(write(tmp_path, broker=BROKER, app=APP))
    with pytest.raises(ConfigInvalidError) as refused:
        resolve(loaded, {"METER_KEY": value}, {})
    assert "spec.values.apiKey" in str(refused.value)
    assert value not in str(refused.value)


def test_a_username_of_basic_with_a_colon_is_a_problem_with_its_place(tmp_path: Path) -> None:
    """It would begin the password (RFC 7617 section 2), as it is refused on the page and in an import."""
    basic = APP.replace('headers: {X-Api-Key: "{apiKey}"}', 'basic: {username: "{apiKey}"}').replace(
        ', pattern: "[a-z0-9-]+"', ""
    )
    loaded = load(write(tmp_path, broker=BROKER, app=basic))
    with pytest.raises(ConfigInvalidError) as refused:
        resolve(loaded, {"METER_KEY": "alice:secret"}, {})
    (problem,) = refused.value.problems
    assert ("spec.values.apiKey", True) == (problem.path, "colon" in problem.what)
    assert "alice" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("subjectMode: global", "subjectMode: user"), "spec.values"),
        (("values: {apiKey", "values: {other"), "spec.values.other"),
        (("{valueFrom: {env: METER_KEY}}", "plain"), "A secret as plain text"),
        (
            ("fields: {apiKey: {title: API key,", "fields: {second: {title: Two}, apiKey: {title: API key,"),
            "spec.values.second",
        ),
    ],
)
def test_values_that_do_not_fit_are_told(tmp_path: Path, change: tuple[str, str], place: str) -> None:
    text = APP.replace(*change)
    assert text != APP
    assert any(place in problem for problem in map(str, problems_in(write(tmp_path, broker=BROKER, app=text))))
