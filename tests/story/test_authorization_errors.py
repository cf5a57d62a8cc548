"""An error of the authorization step is told to the person whom it concerns: the user, an administrator or the
operator; trouble of the moment passes (case 8)."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oauthbroker.core.errors import LOCALES, Code
from oauthbroker.protocol.authorization_errors import MEANINGS, UNKNOWN, authorization_error, number_of
from oauthbroker.testing import Canaries
from tests.kit.callback_pages import CALLBACK, assert_error_page
from tests.kit.running_broker import Harness

DENIED, ADMIN, STEP = Code.PROVIDER_DENIED, Code.ADMIN_CONSENT_NEEDED, Code.INTERACTION_NEEDED
OPERATOR, PASSING = Code.APP_MISCONFIGURED, Code.PROVIDER_UNREACHABLE
# (the parameters of the provider, the code, the note in the log)
ERRORS: list[tuple[dict[str, str], Code, str]] = [
    ({"error": "access_denied"}, DENIED, ""),
    ({"error": "access_denied", "error_description": "AADSTS65004: User declined."}, DENIED, ""),
    ({"error": "invalid_request"}, OPERATOR, "invalid_request"),
    ({"error": "unauthorized_client"}, OPERATOR, "unauthorized_client"),
    ({"error": "unsupported_response_type"}, OPERATOR, "unsupported_response_type"),
    ({"error": "invalid_scope"}, OPERATOR, "invalid_scope"),
    ({"error": "server_error"}, PASSING, "server_error"),
    ({"error": "temporarily_unavailable"}, PASSING, "temporarily_unavailable"),
    ({"error": "interaction_required"}, STEP, "interaction_required"),
    ({"error": "login_required"}, STEP, "login_required"),
    ({"error": "account_selection_required"}, STEP, "account_selection_required"),
    ({"error": "consent_required"}, STEP, "consent_required"),
    (
        {"error": "consent_required", "error_description": "AADSTS90094: An administrator must agree."},
        ADMIN,
        "consent_required, AADSTS90094",
    ),
    ({"error": "access_denied", "error_description": "AADSTS90094"}, ADMIN, "access_denied, AADSTS90094"),
    ({"error": "admin_policy_enforced"}, ADMIN, "admin_policy_enforced"),
    ({"error": "OAUTH_APP_BLOCKED"}, ADMIN, "oauth_app_blocked"),
    ({"error": "org_internal"}, OPERATOR, "org_internal"),
    ({"error": "odd_word", "error_description": "AADSTS700016: no such app"}, OPERATOR, f"{UNKNOWN}, AADSTS700016"),
]


@pytest.mark.case("8")
@pytest.mark.parametrize(("sent", "code", "note"), ERRORS, ids=[" ".join(sent.values()) for sent, _, _ in ERRORS])
async def test_each_error_is_told_to_whom_it_concerns(
    harness: Harness, canaries: Canaries, sent: dict[str, str], code: Code, note: str
) -> None:
    canary = canaries.mint("provider text").reveal()
    description = f"{sent.get('error_description', '')} {canary}"
    harness.idp.script.authorize.error(sent["error"], error_description=description.lstrip())
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), code)
    assert 0 == harness.idp.count("token")
    session = await harness.session(asked)
    assert ("failed", code) == (session.status, session.failure)
    (event,) = await harness.events()
    assert ("auth.denied" if code is DENIED else "auth.failed", code.value) == (event["type"], event["payload"]["code"])
    lines = map(json.loads, harness.log.getvalue().splitlines())
    reported = [line for line in lines if line["event"] == "an authorization was refused"]
    assert ([note] if note else []) == [line["note"] for line in reported]
    await harness.connected()


@pytest.mark.case("8")
@given(word=some.text(max_size=128), description=some.binary(max_size=64))
def test_a_note_has_words_of_the_closed_list_only(word: str, description: bytes) -> None:
    number = number_of(b"AADSTS90094" + description)
    note = authorization_error(word, number).note
    assert set(note.removeprefix(UNKNOWN).strip(", ").lower().split(", ")) <= {*MEANINGS, ""}


@pytest.mark.case("8")
@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("code", [DENIED, ADMIN, STEP, OPERATOR, PASSING, Code.CONNECTION_UNFINISHED])
def test_each_has_its_own_sentence_in_every_language(code: Code, locale: str) -> None:
    others = {each.sentence(locale) for each in Code if each is not code}
    assert code.sentence(locale) not in others


@pytest.mark.parametrize("with_state", [True, False], ids=["with our state", "from another link"])
async def test_an_administrators_consent_without_a_code_leaves_the_link_open(
    harness: Harness, *, with_state: bool
) -> None:
    """The administrator agrees for all users, and the user has still to sign in."""
    asked = await harness.ask_link()
    person = harness.browser()
    came = dict(parse_qsl(urlsplit(await harness.way_back(asked, person)).query))
    sent = {"admin_consent": "True", "tenant": "11111111-2222", **({"state": came["state"]} if with_state else {})}
    assert_error_page(await person.open(f"{CALLBACK}?{urlencode(sent)}"), Code.CONNECTION_UNFINISHED)
    assert "pending" == (await harness.session(asked)).status
    assert asked.authorization_url == (await harness.ask_link()).authorization_url
    assert [] == await harness.events(count=0)
    assert 200 == (await harness.connect(asked, browser=person)).status


async def test_a_code_beside_an_administrators_consent_is_redeemed(harness: Harness) -> None:
    harness.idp.script.authorize.fields(admin_consent="True")
    await harness.connected()


async def test_an_installation_that_awaits_an_owner_is_an_administrators_to_approve(harness: Harness) -> None:
    harness.idp.script.authorize.fields(code=None, setup_action="request")
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), ADMIN)
    assert ["auth.failed"] == [event["type"] for event in await harness.events()]


async def test_an_error_of_another_browser_ends_nothing_as_the_provider_says(harness: Harness) -> None:
    asked = await harness.ask_link()
    harness.idp.script.authorize.error("unauthorized_client")
    url = await harness.way_back(asked, harness.browser())
    assert_error_page(await harness.browser().open(url), Code.OWNER_BINDING_FAILED)
    assert "an authorization was refused" not in harness.log.getvalue()
