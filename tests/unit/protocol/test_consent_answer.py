"""A token answer that is refused as a whole after a consent: every token in it is named, in any form (case 20)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.protocol.consent_answer import consent_response, salvaged_tokens
from oauthbroker.protocol.device_messages import device_token_response
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse
from tests.unit.protocol.kit import APP, CANARY, answer, assert_clean, refusal, with_habits

AT, RT = f"{CANARY}-at", f"{CANARY}-rt"
TOKENS: dict[str, Any] = {"access_token": AT, "refresh_token": RT, "token_type": "bearer"}
WHOLE = json.dumps(TOKENS)
FORM = f"access_token={AT}&refresh_token={RT}&token_type=bearer"
TWICE = f'{{"access_token": "first", "access_token": "{AT}", "refresh_token": "{RT}", "token_type": "bearer"}}'

REFUSED: dict[str, tuple[ProviderResponse, list[str]]] = {
    "NaN": (answer(WHOLE.replace('"bearer"', '"bearer", "expires_in": NaN').encode()), [RT, AT]),
    "a name twice": (answer(TWICE.encode()), [RT, AT, "first"]),
    "a form with a name twice": (answer(f"{FORM}&access_token=second".encode()), [RT, "second", AT]),
    "a form behind a mark": (answer(f"\ufeff{FORM}&access_token=second".encode()), [RT, "second", AT]),
    "a name twice in UTF-16": (answer(TWICE.encode("utf-16")), [RT, AT, "first"]),
    "a list of one": (answer([TOKENS]), [RT, AT]),
    "the status of a refusal": (answer(TOKENS, 400), [RT, AT]),
    "an error beside them": (answer({**TOKENS, "error": "server_error"}), [RT, AT]),
    "not ok": (answer({**TOKENS, "ok": False}), [RT, AT]),
    "no access token": (answer({"refresh_token": RT}), [RT]),
    "an access token that is none": (answer({**TOKENS, "access_token": 7}), [RT]),
    "another type": (answer({**TOKENS, "token_type": "mac"}), [RT, AT]),
}
NO_TOKENS = {
    "a page": answer(b"<h1>hello</h1>", 200, "text/html"),
    "nothing": answer(b""),
    "a list": answer([AT]),
    "too deep": answer(b"[" * 100_000),
    "busy": answer(TOKENS, 500),
    "a word": answer({"error": "invalid_grant"}, 400),
}


@pytest.mark.case("20")
@pytest.mark.parametrize("read", [consent_response, device_token_response], ids=["code", "device code"])
@pytest.mark.parametrize(("said", "tokens"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_every_token_that_came_with_it(read: Any, said: ProviderResponse, tokens: list[str]) -> None:
    error = refusal(lambda: read(APP, said))
    assert isinstance(error, RefusedTokens), error
    assert tokens[:1] == [each.reveal() for each in error.issued.refresh]
    assert sorted(tokens[1:]) == sorted(each.reveal() for each in error.issued.access)
    assert CANARY not in f"{error!r} {error} {error.note} {error.issued}"


@pytest.mark.parametrize("said", NO_TOKENS.values(), ids=NO_TOKENS)
def test_a_refusal_without_tokens_stays_as_it_is(said: ProviderResponse) -> None:
    assert type(refusal(lambda: consent_response(APP, said))) is BrokerError


def test_tokens_at_the_profiles_place_and_under_its_names_are_found() -> None:
    app = with_habits(token_path=("authed_user",), token_names={"access_token": "key"})
    assert [AT] == [it.reveal() for it in salvaged_tokens(app, answer({"authed_user": {"key": AT}})).secrets]
    assert () == salvaged_tokens(app, answer(TOKENS)).secrets


def test_an_answer_in_order_is_taken() -> None:
    assert isinstance(consent_response(APP, answer({**TOKENS, "expires_in": 60})), TokenResponse)


@pytest.mark.parametrize("label", ["application/json", "text/html", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("form", ["json", "form", "list"])
def test_tokens_that_end_with_equals_signs_are_read_in_each_form(form: Any, label: str) -> None:
    """JSON with such a token could pass for a form of one strange field."""
    app = with_habits(token_response_format=form, token_type_optional=True)
    padded = {"access_token": f"{AT}==", "refresh_token": RT}
    for body in (json.dumps([padded] if form == "list" else padded), f"access_token={AT}%3D%3D&refresh_token={RT}"):
        said = consent_response(app, answer(body.encode(), label=label))
        assert f"{AT}==" == said.access_token.reveal()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_body_breaks_the_search(body: bytes) -> None:
    assume(b"access_token" not in body)  # Hypothesis also draws honest answers: texts of this repository
    error = refusal(lambda: consent_response(APP, answer(body)))
    assert error.code in {Code.TOKEN_RESPONSE_INVALID, Code.EXCHANGE_FAILED, Code.APP_MISCONFIGURED}
    assert_clean(error)
