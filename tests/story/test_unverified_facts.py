"""The facts of the 25 presets that are asked for most for which no written source was found: each kind of them is wrong
here, and nothing is lost or let in for it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.providers import presets
from oauthbroker.testing import Canaries, TestClock
from tests.kit.broker_process import ask, connected
from tests.kit.popular_presets import POPULAR
from tests.kit.preset_plays import Play, Refusal, Said, plays
from tests.kit.preset_stage import LATER, Stage, app_of
from tests.kit.running_broker import ALICE
from tests.story.revocation_kit import apps_of_one_client, grant_of, secret_count

MORE_SCOPES = {"salesforce", "xero", "zoom"}
WORDS = {"slack": "errorWords.code_already_used", "salesforce": "errorWords.unknown_error"}
IDLE = {"airtable": "notes.0", "zoom": "notes.1"}  # a note says the days as well
REACH = {"atlassian", "hubspot", "notion"}
TYPE_AND_ERROR = "intercom"
PKCE = "hubspot"
DAY = 24 * 3600


@pytest.fixture
def stage(tmp_path: Path, test_clock: TestClock, canaries: Canaries) -> Stage:
    return Stage(tmp_path, test_clock, canaries)


def of(names: set[str] | dict[str, str]) -> list[Any]:
    return [pytest.param(play, id=str(play)) for play in plays() if play.provider in names]


def with_answers(play: Play, **bodies: Any) -> Play:
    """The play with other bodies of its answers."""
    said = {name: getattr(play.answers, name).model_copy(update={"body": body}) for name, body in bodies.items()}
    return play.model_copy(update={"answers": play.answers.model_copy(update=said)})


def refused_with(body: Any, code: str, *, at: str = "token", status: int = 400) -> Refusal:
    return Refusal.model_validate({"at": at, "answer": {"status": status, "body": body}, "code": code})


def test_each_of_them_is_of_a_kind_that_is_tried_here():
    tried = {
        *((name, "extraScopes") for name in MORE_SCOPES),
        *WORDS.items(),
        *((name, "refreshTokenIdleDays") for name in IDLE),
        *IDLE.items(),
        *((name, "revoke.reach") for name in REACH),
        (TYPE_AND_ERROR, "tokenTypeOptional"),
        (TYPE_AND_ERROR, "errorMembers"),
        (PKCE, "pkce"),
    }
    assert tried == {(name, path) for name in POPULAR for path in presets()[name].unverified()}


@pytest.mark.parametrize("play", of(MORE_SCOPES))
async def test_a_scope_more_in_an_answer_reaches_no_tool(play: Play, stage: Stage) -> None:
    changed = {}
    for name in ("token", "refresh"):
        answer: Said | None = getattr(play.answers, name)
        if answer is not None:
            changed[name] = copy.deepcopy(answer.body) | {"scope": f"{answer.body.get('scope', '')} all:of-it".strip()}
    await stage.live(with_answers(play, **changed))


@pytest.mark.parametrize("name", WORDS)
async def test_a_word_that_no_table_has_ends_no_grant(name: str, stage: Stage) -> None:
    play = next(it for it in plays() if it.provider == name and it.result.refreshable)
    word = {"ok": False, "error": "never_heard_of"}
    await stage.refuse(play, refused_with(word, "refreshRefused", at="refresh"))


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"error": "invalid_grant"}, 400, "exchangeFailed"),
        ({"message": "no list of errors"}, 404, "tokenResponseInvalid"),
        ({"token": ""}, 200, "tokenResponseInvalid"),
        ("", 400, "tokenResponseInvalid"),
    ],
)
async def test_another_form_of_an_error_is_none_of_a_token(body: Any, status: int, code: str, stage: Stage) -> None:
    play = next(it for it in plays() if it.provider == TYPE_AND_ERROR)
    await stage.refuse(play, refused_with(body, code, status=status))


async def test_a_token_type_that_comes_is_read(stage: Stage) -> None:
    play = next(it for it in plays() if it.provider == TYPE_AND_ERROR)
    body = play.answers.token.body
    await stage.live(with_answers(play, token=body | {"token_type": "bearer"}))
    await stage.refuse(play, refused_with(body | {"token_type": "mac"}, "tokenResponseInvalid", status=200))


@pytest.mark.parametrize("play", of(IDLE))
async def test_days_without_use_are_a_forecast_and_end_no_grant(play: Play, stage: Stage) -> None:
    days = play.preset.refresh_token_idle_days
    assert days is not None
    assert days * DAY < LATER, "the play refreshes once it was unused for longer"
    await stage.live(play)


@pytest.mark.parametrize("play", of({PKCE}))
async def test_where_nothing_is_known_of_pkce_it_is_sent_and_the_account_is_compared(play: Play, stage: Stage) -> None:
    app = app_of(play, stage.folder, stage.canaries)
    assert ("unknown", "providerIdentity") == (app.habits.pkce, app.owner.binding)
    await stage.live(play)  # the player refuses an authorization without S256, and does not look at the verifier
    await stage.refuse(play, refused_with({"error": "invalid_request"}, "exchangeFailed"))


@pytest.mark.parametrize("play", of(REACH))
def test_the_wider_reach_of_a_revocation_is_assumed(play: Play, stage: Stage) -> None:
    assert "grant" == app_of(play, stage.folder, stage.canaries).revocation.reach


async def test_a_narrower_reach_than_assumed_leaves_a_token_that_is_held_nowhere(start, identity_provider):
    """The other guess would end a living grant of another app."""
    process = start(apps_of_one_client(identity_provider))
    identity_provider.change("client-mail", revoke_reach="token")
    for app in ("mail", "twin"):
        await connected(process, identity_provider, app)
    assert "shared" == await process.broker.grants.revoke("mail", ALICE)
    assert isinstance(await ask(process, "twin"), Ready)
    assert 0 == secret_count(await grant_of(process))
    assert "done" == await process.broker.grants.revoke("twin", ALICE)
    assert isinstance(await ask(process, "twin"), AuthorizationRequired)
