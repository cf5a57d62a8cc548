"""What providers do their own way, written in an app without a preset: each is played from the consent to the refresh, by a
provider that refuses the standard's way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Ready
from oauthbroker.providers.preset import Preset
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.browser import Browser
from tests.kit.callback_pages import assert_already_connected, assert_error_page, assert_leads_to_connected
from tests.kit.preset_plays import Play, Refusal
from tests.kit.preset_stage import Stage
from tests.kit.running_broker import Harness, running, user_app

NO_PRESET = Preset.model_validate({"name": "acme", "title": "Acme", "evidence": {}})


class OwnPlay(Play):
    """A play of an app whose provider has no preset."""

    @property
    def preset(self) -> Preset:
        return NO_PRESET


def play(
    name: str,
    app: dict[str, Any],
    *,
    expects: dict[str, Any],
    answer: Any,
    again: Any,
    refusals: tuple[dict[str, Any], ...] = (),
    lifetime: int = 3600,
    user_info: dict[str, str | None] | None = None,
) -> OwnPlay:
    """A play of an app with these fields beside those that all have."""
    ends = {"authorizationUrl": "https://acme.example/authorize", "tokenUrl": "https://acme.example/token",
            "userInfoUrl": "https://api.acme.example/me"}  # fmt: skip
    owner = {"identity": {"user": {"from": "userInfo", "template": "acme:user:{id}"}}}
    app = {"scopes": ["read"], "endpoints": ends, "owner": owner, **app}
    app["quirks"] = {"userInfoKind": "own", **app.get("quirks", {})}
    result = {"scopes": ["read"], "lifetimeSeconds": lifetime}
    after = {**result, "refreshToken": "replaced"}
    said = {
        "name": name, "source": "a provider of its own", "app": app, "subject": "acme:user:7",
        "expects": {"userInfo": {"headers": user_info or {}}, **expects},
        "answers": {"token": {"body": answer}, "refresh": {"body": again}, "userInfo": {"body": {"id": 7}}},
        "result": {**result, "refreshable": True, "afterRefresh": after}, "refusals": list(refusals),
    }  # fmt: skip
    return OwnPlay.model_validate(said).model_copy(update={"provider": "acme"})


def tokens(**more: Any) -> dict[str, Any]:
    return {"access_token": "{access}", "refresh_token": "{refresh}", "token_type": "Bearer", "scope": "read", **more}


def later(first: Any) -> Any:
    """The same answer with the next tokens."""
    if isinstance(first, dict):
        return {name: later(value) for name, value in first.items()}
    if isinstance(first, list):
        return [later(value) for value in first]
    return {"{access}": "{access2}", "{refresh}": "{refresh2}"}.get(first, first) if isinstance(first, str) else first


def pair(first: Any) -> dict[str, Any]:
    return {"answer": first, "again": later(first)}


BASIC = {"token": {"auth": "basic"}, "refresh": {"auth": "basic"}}
IN_QUERY = {step: {"method": "GET", "body": "query", "auth": "post"} for step in ("token", "refresh")}
LARK_NO = {"at": "refresh", "answer": {"body": {"code": 20037, "msg": "no"}}, "code": "reauth"}
PLAYS = [
    play(
        "the code under another name",
        {"quirks": {"codeParam": "spapi_oauth_code"}},
        expects=BASIC,
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "a registered name",
        {"redirect": {"uriName": "Acme-AcmeApp-PRD-1a2b"}},
        expects={**BASIC, "authorize": {"redirect_uri": "Acme-AcmeApp-PRD-1a2b"}},
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "names of parameters",
        {
            "authMethod": "client_secret_post",
            "quirks": {
                "paramNames": {
                    "client_id": "client_key",
                    "client_secret": "app_secret",
                    "code": "auth_code",
                    "refresh_token": "exchange_again",
                }
            },
        },
        expects={
            "authorize": {"client_id": None},
            "token": {"auth": "post", "absent": ["code", "client_secret"]},
            "refresh": {"auth": "post", "absent": ["refresh_token"]},
        },
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "a public client by another name",
        {"authMethod": "none", "quirks": {"paramNames": {"client_id": "app_id"}}},
        expects={"token": {"auth": "none"}, "refresh": {"auth": "none"}},
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "all in the address",
        {"authMethod": "client_secret_post", "quirks": {"tokenRequestFormat": "query"}},
        expects=IN_QUERY,
        **pair(tokens(expires_in=3600)),
    ),
    *(
        play(
            f"a lifetime as {form}: {said}",
            {"quirks": {"lifetimeField": "ends", "lifetimeForm": form}},
            expects=BASIC,
            **pair(tokens(ends=said)),
        )
        for form, said in (
            ("minutes", 60),
            ("hours", 1),
            ("date", "{http+3600}"),
            ("date", "{plain+3600}"),
            ("date", "{iso+3600}"),
        )
    ),
    play(
        "a list of one",
        {"quirks": {"tokenResponseFormat": "list"}},
        expects=BASIC,
        refusals=({"at": "token", "answer": {"body": [tokens(), tokens()]}, "code": "tokenResponseInvalid"},),
        **pair([tokens(expires_in=3600)]),
    ),
    play(
        "a list in an answer",
        {"quirks": {"tokenPath": ["data", "0"]}},
        expects=BASIC,
        refusals=({"at": "token", "answer": {"body": {"data": [tokens(), tokens()]}}, "code": "tokenResponseInvalid"},),
        **pair({"data": [tokens(expires_in=3600)]}),
    ),
    play(
        "an envelope with a code",
        {"quirks": {"tokenPath": ["data"], "okMembers": {"code": 0}, "errorWords": {"20037": "invalid_grant"}}},
        expects=BASIC,
        refusals=(LARK_NO, {**LARK_NO, "at": "token", "code": "exchangeFailed"}),
        **pair({"code": 0, "msg": "ok", "data": tokens(expires_in=3600)}),
    ),
    play(
        "an envelope with a word",
        {
            "quirks": {
                "tokenPath": ["data"],
                "okMembers": {"status": "success"},
                "errorWords": {"expired": "invalid_grant"},
            }
        },
        expects=BASIC,
        refusals=({"at": "refresh", "answer": {"body": {"status": "expired", "data": tokens()}}, "code": "reauth"},),
        **pair({"status": "success", "data": tokens(expires_in=3600)}),
    ),
    play(
        "scopes at a refresh",
        {"quirks": {"refreshScope": "send"}},
        expects={**BASIC, "refresh": {"auth": "basic", "params": {"scope": "read"}}},
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "the token in a header of its own",
        {"quirks": {"tokenHeader": "X-Acme-Token"}},
        expects=BASIC,
        user_info={"X-Acme-Token": "{access}", "Authorization": None},
        **pair(tokens(expires_in=3600)),
    ),
    play(
        "another scheme",
        {"quirks": {"tokenScheme": "token"}},
        expects=BASIC,
        user_info={"Authorization": "token {access}"},
        **pair(tokens(expires_in=3600)),
    ),
]
REFUSALS = [pytest.param(it, no, id=f"{it.name} {number}") for it in PLAYS for number, no in enumerate(it.refusals, 1)]


@pytest.fixture
def stage(tmp_path: Path, test_clock: TestClock, canaries: Canaries) -> Stage:
    return Stage(tmp_path, test_clock, canaries)


@pytest.mark.parametrize("own", PLAYS, ids=str)
async def test_an_app_says_what_its_provider_does_its_own_way(own: OwnPlay, stage: Stage) -> None:
    await stage.live(own)


@pytest.mark.parametrize("own, refusal", REFUSALS)
async def test_its_way_to_say_no_is_understood(own: OwnPlay, refusal: Refusal, stage: Stage) -> None:
    await stage.refuse(own, refusal)


@pytest.mark.parametrize("own", PLAYS, ids=str)
async def test_the_standards_way_fails_there(own: OwnPlay, stage: Stage) -> None:
    """So the play shows that the quirk matters."""
    stage.change = standard
    with pytest.raises(AssertionError):
        await stage.live(own)


def standard(app: App) -> App:
    """The app without its quirks."""
    habits = Habits(user_info_kind="own", lifetime_field=app.habits.lifetime_field)
    return replace(app, habits=habits, redirect=replace(app.redirect, uri_name=""))


# --- a code under another name is as safe as one under its own

CODE = "spapi_oauth_code"


@pytest.fixture
async def amazon(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider, habits=Habits(always_scopes=("openid",), code_param=CODE))
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        yield harness


async def under_its_name(harness: Harness, browser: Browser) -> str:
    """The way back to the broker, as this provider names the code."""
    return (await harness.way_back(await harness.ask_link(), browser)).replace("code=", f"{CODE}=", 1)


async def test_a_code_under_another_name_is_redeemed_once(amazon: Harness) -> None:
    person = amazon.browser()
    url = await under_its_name(amazon, person)
    assert_leads_to_connected(await person.follow(url))
    assert_already_connected(await person.follow(url))
    assert 1 == amazon.idp.count("token")
    assert isinstance(await amazon.ask(), Ready)


async def test_a_code_under_another_name_needs_the_browser_that_was_sent_out(amazon: Harness) -> None:
    url = await under_its_name(amazon, amazon.browser())
    assert_error_page(await amazon.browser().open(url), Code.OWNER_BINDING_FAILED)
    assert 0 == amazon.idp.count("token")


@pytest.mark.parametrize(
    "spoil",
    [
        "{url}&spapi_oauth_code=forged",
        "{url}&%73papi_oauth_code=forged",
        "{url}&spapi_oauth_code=",
        "{url}&state=x",
        "{url}&iss=a&iss=b",
        "{standard}",
    ],
)
async def test_a_code_under_another_name_comes_once_and_by_that_name(amazon: Harness, spoil: str) -> None:
    person = amazon.browser()
    url = await under_its_name(amazon, person)
    spoilt = spoil.format(url=url, standard=url.replace(f"{CODE}=", "code="))
    assert_error_page(await person.follow(spoilt), Code.CALLBACK_MALFORMED)
    assert 0 == amazon.idp.count("token")
    assert_leads_to_connected(await person.follow(url))
