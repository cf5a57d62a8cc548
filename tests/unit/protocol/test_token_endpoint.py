from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.protocol.client_credentials import client_credentials_response
from oauthbroker.protocol.messages import ProviderResponse, encode_form
from oauthbroker.protocol.token_endpoint import (
    BOUND,
    RefusedTokens,
    TokenResponse,
    code_request,
    token_response,
)
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, answer, code_of, refusal, with_client, with_habits

GOOD: dict[str, Any] = {"access_token": f"{CANARY}-at", "token_type": "Bearer"}
JSON = "application/json"


def validated(**members: Any) -> TokenResponse:
    return token_response(APP, answer(GOOD | members))


# --- asking


def test_the_code_goes_out_with_its_verifier_and_exact_redirect_uri():
    request = code_request(APP, APP.endpoints, Secret("code-1"), Secret("v" * 43), clock=TestClock())
    assert ("POST", APP.endpoints.token_url) == (request.method, request.url)
    assert (
        b"grant_type=authorization_code&code=code-1"
        b"&redirect_uri=https%3A%2F%2Fbroker.example%2Fbase%2Foauth%2Fcallback%2Fshop&code_verifier=" + b"v" * 43
    ) == encode_form(request.form or {})


def test_options_of_the_app_never_override_the_brokers_own_parameters():
    reserved = ("grant_type", "code", "redirect_uri", "code_verifier", "client_id", "client_secret", "scope")
    app = with_habits(token_params=dict.fromkeys(reserved, "evil") | {"audience": "api"})
    form = encode_form(code_request(app, app.endpoints, Secret("c"), Secret("v"), clock=TestClock()).form or {})
    assert b"audience=api" in form
    assert b"evil" not in form


def test_the_request_prints_no_secret():
    request = code_request(APP, APP.endpoints, Secret(f"{CANARY}-code"), Secret(CANARY), clock=TestClock())
    assert CANARY not in repr(request)


# --- believing


def test_a_minimal_answer_is_enough():
    tokens = validated()
    assert f"{CANARY}-at" == tokens.access_token.reveal()
    assert ("bearer", None, None, None, None) == (
        tokens.token_type, tokens.refresh_token, tokens.lifetime_seconds, tokens.scopes, tokens.id_token,
    )  # fmt: skip


def test_the_response_prints_nothing_of_the_tokens_or_the_facts():
    tokens = validated(refresh_token=f"{CANARY}-rt", team={"id": f"{CANARY}-team"})
    assert CANARY not in f"{tokens!r} {tokens} {tokens:}"


def test_secrets_come_in_the_order_to_revoke_them():
    assert ["rt", f"{CANARY}-at"] == [token.reveal() for token in validated(refresh_token="rt").issued.secrets]
    assert [f"{CANARY}-at"] == [token.reveal() for token in validated().issued.secrets]


def test_facts_keep_everything_but_secrets_at_any_depth():
    tokens = validated(
        refresh_token="r",
        id_token="a.b.c",
        team={"id": "T1", "bot_access_token": CANARY},
        list=[{"client_secret": CANARY, "name": "n"}],
    )
    assert {"token_type": "Bearer", "team": {"id": "T1"}, "list": [{"name": "n"}]} == tokens.facts


@pytest.mark.case("19")
@pytest.mark.parametrize(
    "body, status",
    [
        ({"ok": False}, 200),
        ({**GOOD, "ok": False}, 200),
        ({**GOOD, "ok": None}, 200),
        ({**GOOD, "ok": 1}, 200),
        ({**GOOD, "error": None}, 200),
        ({**GOOD, "error": ""}, 200),
        ({**GOOD, "error": {"type": "x"}}, 200),
        ({"error": None}, 200),
        ({}, 200),
        ({"message": "no"}, 400),
        (GOOD, 400),
        (GOOD, 204),
        (GOOD, 302),
        (b"", 400),
    ],
)
def test_an_answer_that_is_neither_token_nor_error_is_refused(body, status):
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(APP, answer(body, status)))


def _text(text: str) -> bytes:
    return text.encode()


GOOD_TEXT = json.dumps(GOOD)


@pytest.mark.case("20")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_text(f"<html>{CANARY}</html>"), id="html"),
        pytest.param(_text(f"[{GOOD_TEXT}]"), id="array"),
        pytest.param(_text(GOOD_TEXT[:-1]), id="cut"),
        pytest.param(_text(GOOD_TEXT + GOOD_TEXT), id="twice"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": NaN}'), id="nan"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": -Infinity}'), id="infinity"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": 1e999}'), id="number-too-large"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": ' + "9" * 5000 + "}"), id="digits"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "access_token": "other"}'), id="duplicate-name"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": {"a": 1, "a": 2}}'), id="duplicate-name-below"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": ' + "[" * 33 + "]" * 33 + "}"), id="deep"),
        pytest.param(b"[" * 100_000, id="100k-brackets"),
        pytest.param(b'{"a":' * 100_000, id="100k-braces"),
        pytest.param(GOOD_TEXT.encode("utf-16-le"), id="utf-16 without its mark"),
        pytest.param(b"\xef\xbb\xbf" * 2 + _text(GOOD_TEXT), id="two marks"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": "') + b'\xff"}', id="bad-utf-8"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "x": "\\ud800"}'), id="lone-surrogate"),
        pytest.param(_text(GOOD_TEXT[:-1] + ', "\\ud800": 1}'), id="lone-surrogate-name"),
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
    ],
)
def test_json_that_a_cautious_reader_would_not_take_is_refused(body):
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(APP, answer(body)))


@pytest.mark.case("21")
@pytest.mark.parametrize(
    "format_, label, body, marks",
    [
        ("json", "application/json", GOOD_TEXT, ()),
        ("json", "Application/JSON; charset=UTF-8", GOOD_TEXT, ()),
        ("json", "application/vnd.api+json", GOOD_TEXT, ()),
        ("json", "text/html", GOOD_TEXT, ("mediaType",)),
        ("json", "text/plain", GOOD_TEXT, ("mediaType",)),
        ("json", "", GOOD_TEXT, ("mediaType",)),
        ("json", "application/jsonp", GOOD_TEXT, ("mediaType",)),
        ("json", "application/x-www-form-urlencoded", urlencode(GOOD), ("mediaType",)),
        ("json", "application/json", urlencode(GOOD), ("mediaType",)),
        ("form", "application/x-www-form-urlencoded", urlencode(GOOD), ()),
        ("form", "application/x-www-form-urlencoded;charset=utf-8", urlencode(GOOD), ()),
        ("form", "application/json", GOOD_TEXT, ("mediaType",)),
        ("form", "text/html", urlencode(GOOD), ("mediaType",)),
        ("form", "application/x-www-form-urlencoded", GOOD_TEXT, ("mediaType",)),
        ("form", "application/x-www-form-urlencoded", urlencode(GOOD) + "&access_token=b", None),
        ("form", "application/x-www-form-urlencoded", urlencode(GOOD) + "&x=%ff", None),
        ("form", "application/x-www-form-urlencoded", "", None),
    ],
)
def test_the_body_is_json_or_a_form_and_another_label_than_the_profiles_is_marked(format_, label, body, marks):
    app = with_habits(token_response_format=format_)

    def validate() -> TokenResponse:
        return token_response(app, answer(body.encode(), label=label))

    if marks is None:
        assert Code.TOKEN_RESPONSE_INVALID == code_of(validate)
    else:
        tokens = validate()
        assert (GOOD["access_token"], marks) == (tokens.access_token.reveal(), tokens.unusual)


def test_a_form_carries_lifetime_scope_and_refresh_token():
    body = urlencode({**GOOD, "expires_in": "60", "scope": "a b", "refresh_token": "r"}).encode()
    label = "application/x-www-form-urlencoded"
    tokens = token_response(with_habits(token_response_format="form"), answer(body, label=label))
    assert (60, ("a", "b")) == (tokens.lifetime_seconds, tokens.scopes)


@pytest.mark.case("25")
@pytest.mark.parametrize(
    "value", [None, "", 7, True, ["t"], {"t": 1}, "a\r\nX: y", "a\nb", "a b", " a", "töken", "a\x00", "a\x7f", "\u200b"]
)
def test_an_access_token_is_visible_ascii(value):
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated(access_token=value))


@pytest.mark.case("25")
def test_a_missing_access_token_is_refused():
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(APP, answer({"token_type": "bearer"})))


@pytest.mark.case("26")
@pytest.mark.parametrize("token_type", ["bearer", "Bearer", "BEARER", "bEaReR"])
def test_the_case_of_bearer_does_not_matter(token_type):
    assert "bearer" == validated(token_type=token_type).token_type


@pytest.mark.case("26")
@pytest.mark.parametrize("token_type", [None, "", "mac", "bot", "Bot", 1, ["bearer"], "bearer ", "beareR\u0130", "N_A"])
def test_another_type_is_refused_and_hands_over_what_to_revoke(token_type):
    error = refusal(lambda: validated(token_type=token_type, refresh_token="rt"))
    assert Code.TOKEN_RESPONSE_INVALID == error.code
    assert isinstance(error, RefusedTokens)
    assert ["rt", f"{CANARY}-at"] == [token.reveal() for token in error.tokens]


def test_an_answer_without_a_type_is_told_from_one_with_another_type():
    assert "no token type" == refusal(lambda: validated(token_type=None)).note
    assert "a token type that was not asked for" == refusal(lambda: validated(token_type="mac")).note


@pytest.mark.case("26")
def test_an_alias_counts_as_bearer_only_where_the_profile_names_it():
    app = with_habits(token_type_aliases=("bot", "user"))
    assert "bearer" == token_response(app, answer({**GOOD, "token_type": "bot"})).token_type
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer({**GOOD, "token_type": "Bot"})))


@pytest.mark.case("27")
@pytest.mark.parametrize("token_type", ["DPoP", "dpop"])
def test_an_unrequested_bound_token_is_refused_but_can_be_revoked(token_type):
    error = refusal(lambda: validated(token_type=token_type))
    assert isinstance(error, RefusedTokens)
    assert (Code.TOKEN_RESPONSE_INVALID, 1) == (error.code, len(error.tokens))
    assert CANARY not in f"{error!r} {error} {error.tokens}"


AROUND: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"token_type_aliases": ("DPoP", "dpop", "MAC", "pop", "N_A")}, {}),
    ({"token_names": {"token_type": "kind"}}, {"kind": "Bearer"}),
    ({"token_names": {"token_type": "kind"}, "token_type_optional": True}, {}),
    ({"token_path": ("data",)}, {"data": {**GOOD, "token_type": "Bearer"}}),
    ({"token_names": {"token_type": "kind"}, "token_type_aliases": ("MAC", "DPoP")}, {"kind": "MAC"}),
]


@pytest.mark.case("27")
@pytest.mark.parametrize("token_type", ["DPoP", "dpop", "MAC", "pop", "N_A"])
@pytest.mark.parametrize(("habits", "members"), AROUND, ids=["alias", "renamed", "left out", "outside", "both"])
def test_no_profile_hands_out_a_bound_token_as_bearer(
    habits: dict[str, Any], members: dict[str, Any], token_type: str
) -> None:
    app = with_habits(**habits)
    error = refusal(lambda: token_response(app, answer({**GOOD, "token_type": token_type, **members})))
    assert isinstance(error, RefusedTokens)
    assert Code.TOKEN_RESPONSE_INVALID == error.code


@pytest.mark.case("27")
def test_a_bound_type_at_the_token_path_is_refused_where_the_profile_reads_another_member() -> None:
    app = with_habits(token_path=("data",), token_names={"token_type": "kind"})
    found = {**GOOD, "kind": "Bearer"}
    assert f"{CANARY}-at" == token_response(app, answer({"data": found})).access_token.reveal()
    found["token_type"] = "DPoP"
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer({"data": found})))


@pytest.mark.case("27")
@pytest.mark.parametrize("kind", ["DPoP", "MAC"])
def test_a_renamed_type_is_no_bearer_by_an_alias_either(kind: str) -> None:
    app = with_habits(token_names={"token_type": "kind"}, token_type_aliases=(kind,))
    found = {"access_token": f"{CANARY}-at", "kind": kind}
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer(found)))


YEAR = 365 * 24 * 3600


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "value, seconds",
    [
        (3600, 3600), ("3600", 3600), (3599.9, 3599), (0, 0), (-5, 0), (-0.5, 0), ("0", 0), ("0007", 7),
        (YEAR, YEAR), (YEAR + 1, YEAR), (1e30, YEAR), ("9" * 20, YEAR), (None, 1234),
    ],
)  # fmt: skip
def test_a_lifetime_is_whole_seconds_between_nothing_and_a_year(value, seconds):
    app = with_habits(default_lifetime_seconds=1234)
    assert seconds == token_response(app, answer({**GOOD, "expires_in": value})).lifetime_seconds


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "value", [True, False, [1], {"s": 1}, "soon", "", "-5", "3600.0", "1e3", " 60", "٣٦٠", "9" * 21]
)
def test_a_lifetime_that_is_junk_is_as_if_it_were_absent_and_marked_and_refused_of_a_clients_own_token(value):
    tokens = validated(expires_in=value)
    assert (None, False, ("lifetime",)) == (tokens.lifetime_seconds, tokens.end_stated, tokens.unusual)
    error = refusal(lambda: client_credentials_response(APP, answer({**GOOD, "expires_in": value})))
    assert (Code.TOKEN_RESPONSE_INVALID, RefusedTokens) == (error.code, type(error))


@pytest.mark.case("28")
def test_a_planted_expires_at_is_not_looked_at():
    assert 60 == validated(expires_in=60, expires_at=9_999_999_999).lifetime_seconds
    assert validated(expires_at=9_999_999_999).lifetime_seconds is None


@pytest.mark.case("31")
@pytest.mark.parametrize(
    "separator, value, scopes",
    [
        (" ", "a b", ("a", "b")),
        (" ", "b a b", ("b", "a")),
        (" ", "  a   b ", ("a", "b")),
        (" ", "", ()),
        (" ", "a,b", ("a,b",)),
        (" ", "https://x.example/auth/a.b", ("https://x.example/auth/a.b",)),
        (",", "a,b", ("a", "b")),
        (",", "a, b,,", ("a", "b")),
        (",", "", ()),
        (" ", ["a", "b"], ("a", "b")),
        (",", ["a,b", "c"], ("a,b", "c")),
        (" ", [], ()),
        (" ", None, None),
        (" ", " ".join(f"s{n}" for n in range(1000)), tuple(f"s{n}" for n in range(1000))),
    ],
)
def test_scopes_are_read_as_the_app_separates_them(separator, value, scopes):
    app = with_habits(scope_separator=separator)
    assert scopes == token_response(app, answer({**GOOD, "scope": value})).scopes


@pytest.mark.case("31")
@pytest.mark.parametrize(
    "separator, value",
    [
        (" ", 'a "b"'), (" ", "a\\b"), (" ", "re\u0430d"), (" ", "a\tb"), (" ", "a\u00a0b"), (" ", "a\nb"), (",", "a b,c"),
        (" ", 5), (" ", True), (" ", {"a": 1}), (" ", ["a", 5]), (" ", ["a", ""]), (" ", ["a b"]), (" ", [["a"]]),
        (" ", " ".join(f"s{n}" for n in range(10_000))), (" ", ["a"] * 10_000),
    ],
)  # fmt: skip
def test_scope_junk_is_refused(separator, value):
    app = with_habits(scope_separator=separator)
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer({**GOOD, "scope": value})))


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_refresh_or_id_token_is_none_at_all(value):
    tokens = validated(refresh_token=value, id_token=value)
    assert (None, None) == (tokens.refresh_token, tokens.id_token)


@pytest.mark.parametrize("name", ["refresh_token", "id_token"])
@pytest.mark.parametrize("value", [5, ["x"], "a\nb", False])
def test_a_broken_second_token_refuses_the_answer_and_hands_over_the_first(name, value):
    error = refusal(lambda: validated(**{name: value}))
    assert isinstance(error, RefusedTokens)
    assert [f"{CANARY}-at"] == [token.reveal() for token in error.tokens]


SLACK = {
    "ok": True,
    "access_token": f"{CANARY}-bot",
    "token_type": "bot",
    "scope": "bot:scope",
    "team": {"id": "T1"},
    "authed_user": {
        "id": "U1", "access_token": f"{CANARY}-user", "token_type": "user", "scope": "a,b", "refresh_token": "r", "expires_in": 9,
    },
}  # fmt: skip


def test_user_tokens_that_lie_deeper_are_taken_from_there_and_only_from_there():
    app = with_habits(token_path=("authed_user",), token_type_aliases=("user",), scope_separator=",")
    tokens = token_response(app, answer(SLACK))
    assert (f"{CANARY}-user", ("a", "b"), 9) == (tokens.access_token.reveal(), tokens.scopes, tokens.lifetime_seconds)
    assert ({"id": "T1"}, "U1") == (tokens.facts["team"], tokens.facts["authed_user"]["id"])
    assert CANARY not in repr(dict(tokens.facts))


@pytest.mark.parametrize(
    "body", [GOOD, {**GOOD, "authed_user": None}, {**GOOD, "authed_user": ["x"]}, {**GOOD, "authed_user": {}}]
)
def test_a_token_path_that_leads_nowhere_is_refused(body):
    app = with_habits(token_path=("authed_user",))
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer(body)))


# --- errors of the provider


@pytest.mark.case("18")
@pytest.mark.parametrize(
    "status, word, code, note",
    [
        (400, "invalid_grant", Code.EXCHANGE_FAILED, "invalid_grant"),
        (401, "invalid_grant", Code.EXCHANGE_FAILED, "invalid_grant"),
        (400, "invalid_request", Code.EXCHANGE_FAILED, "invalid_request"),
        (400, "invalid_scope", Code.EXCHANGE_FAILED, "invalid_scope"),
        (400, f"{CANARY}-odd", Code.EXCHANGE_FAILED, "an error outside RFC 6749"),
        (200, "bad_verification_code", Code.EXCHANGE_FAILED, "an error outside RFC 6749"),
        (400, "invalid_client", Code.APP_MISCONFIGURED, "invalid_client"),
        (401, "invalid_client", Code.APP_MISCONFIGURED, "invalid_client"),
        (200, "incorrect_client_credentials", Code.EXCHANGE_FAILED, "an error outside RFC 6749"),
        (400, "unauthorized_client", Code.APP_MISCONFIGURED, "unauthorized_client"),
        (400, "unsupported_grant_type", Code.APP_MISCONFIGURED, "unsupported_grant_type"),
        (401, f"{CANARY}-odd", Code.APP_MISCONFIGURED, "an error outside RFC 6749"),
        (400, "temporarily_unavailable", Code.PROVIDER_UNREACHABLE, "temporarily_unavailable"),
    ],
)
def test_an_error_of_the_provider_is_told_by_its_word_alone(status, word, code, note):
    body = {"error": word, "error_description": f"{CANARY} <script>", "error_uri": f"https://{CANARY}"}
    error = refusal(lambda: token_response(APP, answer(body, status)))
    assert (code, note) == (error.code, error.note)


@pytest.mark.parametrize("label", ["application/json", "text/plain", "text/javascript"])
def test_an_error_is_read_under_any_content_type(label):
    validate = answer({"error": "invalid_grant"}, 400, label)
    assert Code.EXCHANGE_FAILED == code_of(lambda: token_response(APP, validate))


def test_an_error_in_a_form_is_read_where_forms_are_agreed():
    validate = answer(b"error=invalid_client", 400, "application/x-www-form-urlencoded")
    assert Code.APP_MISCONFIGURED == code_of(
        lambda: token_response(with_habits(token_response_format="form"), validate)
    )


def test_401_without_a_word_means_that_the_client_is_not_known():
    assert Code.APP_MISCONFIGURED == code_of(lambda: token_response(APP, answer(b"<html>", 401, "text/html")))


@pytest.mark.parametrize(
    "status, code",
    [(429, Code.PROVIDER_RATE_LIMITED), (500, Code.PROVIDER_UNREACHABLE), (503, Code.PROVIDER_UNREACHABLE)],
)
def test_a_busy_provider_is_asked_again_later(status, code):
    error = refusal(lambda: token_response(APP, answer(GOOD, status, retry_after=17)))
    assert (code, True, 17) == (error.code, error.retryable, error.retry_after_seconds)


# --- the law: any answer gives a TokenResponse or a BrokerError

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["bearer", "DPoP", "a b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token", "error", "ok", "authed_user"), JSONS),
)  # fmt: skip
BODIES = st.binary(max_size=200) | JSONS.map(lambda v: json.dumps(v).encode()) | MEMBERS.map(
    lambda m: json.dumps({**GOOD, **m}).encode()
)  # fmt: skip
APPS = st.sampled_from([
    APP, with_client(auth_method="none"), with_habits(token_response_format="form"), with_habits(token_path=("authed_user",)),
    with_habits(scope_separator=",", token_type_aliases=("a b",)),
])  # fmt: skip


@pytest.mark.case("19", "20", "25", "26", "28", "31")
@given(
    APPS,
    BODIES,
    st.sampled_from([200, 200, 200, 201, 302, 400, 401, 404, 429, 500]),
    st.sampled_from([JSON, "text/html", ""]),
)
def test_every_answer_gives_a_token_or_a_broker_error(app, body, status, label):
    try:
        tokens = token_response(app, ProviderResponse(status=status, content_type=label, retry_after=None, body=body))
    except BrokerError as error:
        assert error.code in {  # noqa: PT017 - both outcomes are fine
            Code.TOKEN_RESPONSE_INVALID, Code.EXCHANGE_FAILED, Code.APP_MISCONFIGURED, Code.PROVIDER_UNREACHABLE, Code.PROVIDER_RATE_LIMITED,
        }  # fmt: skip
    else:
        assert status in {200, 201}
        assert (201 == status) is ("status" in tokens.unusual)
        assert tokens.access_token.reveal().isascii()
        assert tokens.lifetime_seconds is None or 0 <= tokens.lifetime_seconds <= YEAR
        assert json.dumps(tokens.facts).encode()


@pytest.mark.parametrize("word", ["invalid_dpop_proof", "use_dpop_nonce"])
@pytest.mark.parametrize("status", [400, 401])
def test_a_client_whose_tokens_are_bound_to_a_key_is_for_the_operator_and_no_new_link(word, status):
    error = refusal(lambda: token_response(APP, answer({"error": word}, status)))
    assert (Code.APP_MISCONFIGURED, BOUND) == (error.code, error.note)


@pytest.mark.case("20", "21")
def test_a_list_behind_a_byte_order_mark_is_read_as_the_profile_says():
    app = with_habits(token_response_format="list")
    tokens = token_response(app, answer(b"\xef\xbb\xbf" + json.dumps([GOOD]).encode()))
    assert (GOOD["access_token"], ("encoding",)) == (tokens.access_token.reveal(), tokens.unusual)
    assert Code.TOKEN_RESPONSE_INVALID == code_of(
        lambda: token_response(app, answer(b"\xef\xbb\xbf" + json.dumps([GOOD, GOOD]).encode()))
    )
