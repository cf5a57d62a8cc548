"""What a provider has issued cannot be had again: for its label, status, encoding or lifetime nothing is thrown away, at
a consent and at a refresh. The operator is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from oauthbroker.audit import UnusualAnswer
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.records.grant_view import GrantView
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider.endpoint_script import EndpointScript
from oauthbroker.testing.provider.http import Answer
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, Harness, running, stored_grant, user_app
from tests.story.refresh_kit import LIFETIME
from tests.unit.diagnostics.kit import of_grants

Script = Callable[[EndpointScript], None]
FORM = "application/x-www-form-urlencoded"


def form(status: int = 200, label: str = "application/json", body: Callable[[bytes], bytes] = bytes) -> Script:
    """The honest answer with another status, label or bytes."""

    def change(answer: Answer) -> Answer:
        kept = tuple((name, value) for name, value in answer.headers if name.lower() != "content-type")
        labelled = (("content-type", label),) if label else ()
        return Answer(status, (*kept, *labelled), body(answer.body))

    return lambda script: script.reform(change)


def lives(expires_in: Any) -> Script:
    return lambda script: script.fields(expires_in=expires_in)


def as_form(body: bytes) -> bytes:
    return urlencode(json.loads(body)).encode()


def in_utf_16(body: bytes) -> bytes:
    return body.decode().encode("utf-16")


def twice(body: bytes) -> bytes:
    return body[:-1] + b', "token_type": "Bearer"}'


def with_bom(body: bytes) -> bytes:
    return b"\xef\xbb\xbf" + body


KEPT: Mapping[str, tuple[Script, tuple[str, ...]]] = {
    "201": (form(201), ("status",)),
    "202": (form(202), ("status",)),
    "203": (form(203), ("status",)),
    "text/html": (form(label="text/html"), ("mediaType",)),
    "text/plain": (form(label="text/plain; charset=utf-8"), ("mediaType",)),
    "no label": (form(label=""), ("mediaType",)),
    "labelled as a form": (form(label=FORM), ("mediaType",)),
    "a form": (form(label=FORM, body=as_form), ("mediaType",)),
    "a form as text/html": (form(label="text/html", body=as_form), ("mediaType",)),
    "a byte order mark": (form(body=with_bom), ("encoding",)),
    "UTF-16": (form(body=in_utf_16), ("encoding",)),
    "all at once": (form(201, "text/html", with_bom), ("status", "encoding", "mediaType")),
    "a word as lifetime": (lives("soon"), ("lifetime",)),
    "a list as lifetime": (lives([1]), ("lifetime",)),
    "an object as lifetime": (lives({}), ("lifetime",)),
    "true as lifetime": (lives(True), ("lifetime",)),
    "no lifetime left": (lives(0), ("lifetime",)),
    "less than none": (lives(-5), ("lifetime",)),
    "ten years": (lives(315_360_000), ("lifetime",)),
    "more than a clock holds": (lives(10**30), ("lifetime",)),
}
REFUSED: Mapping[str, Script] = {
    "a member twice": form(201, "text/html", twice),
    "a member twice, behind a mark": form(body=lambda body: with_bom(twice(body))),
    "another token type": lambda script: script.fields(token_type="mac"),
    "an error beside its tokens": lambda script: script.fields(error="server_error", expires_in="soon"),
    "a label and a binding": lambda script: script.fields(token_type="DPoP", expires_in=-1),
}


@pytest.fixture
async def mail(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider)
    identity_provider.change(app.client.client_id, revoke_reach="only")
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        yield harness


def told(harness: Harness) -> list[str]:
    return [entry.unusual for entry in harness.audit.entries if isinstance(entry, UnusualAnswer)]


@pytest.mark.case("19", "20", "21", "28")
@pytest.mark.rule("12.5.6-3")
@pytest.mark.parametrize("script, unusual", KEPT.values(), ids=KEPT)
async def test_a_consent_whose_answer_is_unusual_connects_and_the_operator_is_told(
    mail: Harness, script: Script, unusual: tuple[str, ...]
) -> None:
    script(mail.idp.script.token)
    await mail.connected()
    assert 1 == mail.idp.count("authorization_code")
    assert 0 == mail.idp.count("revoke")
    assert [" ".join(unusual)] == told(mail)
    assert "unusual, and its tokens are kept" in mail.log.getvalue()
    if mail.idp.count("refresh_token") == 0:  # where no lifetime was left, a refresh came since
        grant = await stored_grant(mail)
        assert unusual == grant.unusual
        [found, _] = of_grants([GrantView.of(grant, None, mail.clock.now())], {"mail": None})  # type: ignore[dict-item]
        assert ("mail", "warning") == (found.about, found.severity)
        assert all(word in found.text for word in unusual)


@pytest.mark.case("19", "20", "21", "28")
@pytest.mark.parametrize("script, unusual", KEPT.values(), ids=KEPT)
async def test_a_rotated_refresh_token_is_not_lost_for_such_a_reason_either(
    mail: Harness, script: Script, unusual: tuple[str, ...]
) -> None:
    first = await mail.connected()
    mail.clock.advance(LIFETIME)
    script(mail.idp.script.refresh)
    again = await mail.ask()
    grant = await stored_grant(mail)
    assert unusual == grant.unusual
    assert grant.refresh_state.spare is None
    assert grant.token.access_token.reveal() != first.access_token.reveal()
    assert mail.idp.is_alive(grant.token.access_token)
    is_over = grant.token.lifetime_seconds == 0
    assert isinstance(again, Failed if is_over else Ready)
    assert [" ".join(unusual)] == told(mail)
    mail.clock.advance(10 * LIFETIME)
    assert isinstance(await mail.ask(), Ready)
    if (await stored_grant(mail)).updated_at != grant.updated_at:
        assert () == (await stored_grant(mail)).unusual, "the next answer was as it should be"
    (family,) = mail.idp.families("client-mail")
    assert "" == family.ended_by


async def test_answers_that_stay_unusual_are_logged_once(mail: Harness) -> None:
    mail.idp.script.token.reform(lambda answer: replace(answer, status=201), times=None)
    for _ in range(3):
        await mail.connected() if await mail.grant() is None else await mail.ask()
        mail.clock.advance(LIFETIME)
    assert 2 == mail.idp.count("refresh_token")
    assert ["status"] == told(mail)


async def test_a_mark_that_the_audit_log_does_not_take_costs_no_token(
    mail: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = mail.audit.write

    def takes_no_mark(entry: Any, at: Any) -> None:
        if isinstance(entry, UnusualAnswer):
            raise BrokerError(Code.STORE_UNAVAILABLE)
        write(entry, at)

    monkeypatch.setattr(mail.audit, "write", takes_no_mark)
    form(201)(mail.idp.script.token)
    await mail.connected()
    mail.clock.advance(LIFETIME)
    form(label="text/html")(mail.idp.script.refresh)
    assert isinstance(await mail.ask(), Ready)
    assert (("mediaType",), []) == ((await stored_grant(mail)).unusual, told(mail))
    assert 2 == mail.log.getvalue().count("the audit log lacks an entry")


@pytest.mark.case("19", "20", "26", "27")
@pytest.mark.parametrize("script", REFUSED.values(), ids=REFUSED)
async def test_what_makes_an_answer_ambiguous_or_its_token_unusable_is_refused_and_revoked(
    mail: Harness, script: Script
) -> None:
    script(mail.idp.script.token)
    asked = await mail.ask_link()
    assert 200 != (await mail.connect(asked)).status
    assert (await mail.session(asked)).failure in {
        Code.TOKEN_RESPONSE_INVALID,
        Code.EXCHANGE_FAILED,
        Code.PROVIDER_UNREACHABLE,
    }
    assert (None, 2) == (await mail.grant(), mail.idp.count("revoke"))
    assert 0 == mail.idp.living_tokens("client-mail")
    assert [] == told(mail)


def as_mac(body: bytes) -> bytes:
    return json.dumps({**json.loads(body), "token_type": "mac"}).encode()


SPARED: Mapping[str, Script] = {
    **REFUSED,
    "another type in a form": form(label=FORM, body=lambda body: as_form(as_mac(body))),
    "another type in a form without a label": form(label="", body=lambda body: as_form(as_mac(body))),
    "another type in UTF-16": form(body=lambda body: in_utf_16(as_mac(body))),
    "a form with a member twice": form(label=FORM, body=lambda body: as_form(body) + b"&token_type=Bearer"),
}


@pytest.mark.case("26", "28")
@pytest.mark.parametrize("script", SPARED.values(), ids=SPARED)
async def test_the_rotated_refresh_token_of_a_refused_answer_is_not_lost(mail: Harness, script: Script) -> None:
    await mail.connected()
    before = (await stored_grant(mail)).token.refresh_token
    mail.clock.advance(LIFETIME)
    script(mail.idp.script.refresh)
    assert isinstance(await mail.ask(), Failed)
    spare = (await stored_grant(mail)).refresh_state.spare
    assert spare is not None
    assert before.reveal() != spare.reveal()
    mail.clock.advance(LIFETIME)
    assert isinstance(await mail.ask(), Ready)
    (family,) = mail.idp.families("client-mail")
    assert "" == family.ended_by


USERINFO = {name: KEPT[name] for name in ("201", "203", "text/html", "no label", "a byte order mark", "UTF-16")}


@pytest.mark.case("34")
@pytest.mark.parametrize("script, unusual", USERINFO.values(), ids=USERINFO)
async def test_for_the_form_of_userinfo_no_token_of_a_consent_is_thrown_away(
    identity_provider: IdentityProvider, test_clock: TestClock, script: Script, unusual: tuple[str, ...]
) -> None:
    app = user_app(identity_provider, owner=Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}")))
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        script(identity_provider.script.userinfo)
        await harness.connected()
        assert (unusual, 0) == ((await stored_grant(harness)).unusual, identity_provider.count("revoke"))
        assert [" ".join(unusual)] == told(harness)
        await harness.broker.revoke("mail", subject=ALICE)
        form(201, body=lambda body: body[:-1] + b', "sub": "U234567"}')(identity_provider.script.userinfo)
        assert_error_page(await harness.connect(await harness.ask_link()), Code.SUBJECT_UNVERIFIABLE)


@pytest.mark.case("40")
async def test_an_unusual_answer_of_another_account_connects_nothing(mail: Harness) -> None:
    form(201, "text/html", with_bom)(mail.idp.script.token)
    assert_error_page(await mail.connect(await mail.ask_link(), "bob"), Code.SUBJECT_MISMATCH)
    assert (None, 0) == (await mail.grant(), mail.idp.living_tokens("client-mail"))


async def test_an_error_with_another_label_is_still_no_word_about_the_refresh_token(mail: Harness) -> None:
    """A wall in front of the provider may answer so."""
    await mail.connected()
    mail.clock.advance(LIFETIME)
    mail.idp.script.refresh.answer(200, {"error": "invalid_grant"}, {"content-type": "text/html"})
    refused = await mail.ask()
    assert isinstance(refused, Failed)
    assert "" == (await stored_grant(mail)).refresh_state.ended
