"""RFC 8628's two messages: what leaves us, what we believe of the answers, and what a poll may end with."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.device_messages import (
    GRANT_TYPE,
    DeviceAuthorization,
    DevicePending,
    device_request,
    device_response,
    device_token_request,
    device_token_response,
)
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, encode_form
from oauthbroker.protocol.network.transport import check_url
from oauthbroker.protocol.token_endpoint import RefusedTokens, TokenResponse
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import (
    APP,
    CANARY,
    CLIENT_ID,
    ISSUER,
    answer,
    assert_clean,
    code_of,
    refusal,
    with_client,
    with_endpoints,
    with_habits,
)

DEVICE = with_endpoints(device_authorization_url=f"{ISSUER}/device")
GOOD: dict[str, Any] = {
    "device_code": f"{CANARY}-device",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://id.example/activate",
    "verification_uri_complete": "https://id.example/activate?user_code=WDJB-MJHT",
    "expires_in": 1800,
    "interval": 5,
}
strict_url = partial(check_url, plain_http_loopback=False)


def form_of(request: ProviderRequest) -> dict[str, list[str]]:
    return parse_qs(encode_form(request.form or {}).decode(), keep_blank_values=True)


def validated(**members: Any) -> DeviceAuthorization:
    return device_response(DEVICE, answer(GOOD | members), strict_url)


def without(*names: str) -> ProviderResponse:
    return answer({name: value for name, value in GOOD.items() if name not in names})


def asked(app: App = DEVICE, scopes: tuple[str, ...] = ("read",)) -> ProviderRequest:
    return device_request(app, app.endpoints, scopes, clock=TestClock())


# --- asking


def test_the_request_asks_for_the_scopes_and_proves_who_we_are():
    request = asked()
    assert ("POST", f"{ISSUER}/device") == (request.method, request.url)
    assert {"scope": ["read"]} == form_of(request)
    assert {"Authorization"} == set(request.headers)


def test_a_public_client_names_itself():
    public = with_client(client_secret=None, auth_method="none")
    request = device_request(public, DEVICE.endpoints, ("read",), clock=TestClock())
    assert {"scope": ["read"], "client_id": [CLIENT_ID]} == form_of(request)


def test_what_the_provider_always_wants_is_asked_for_too():
    app = with_habits(always_scopes=("openid",), scope_separator=",", authorize_params={"access_type": "offline"})
    request = device_request(app, DEVICE.endpoints, ("read",), clock=TestClock())
    assert {"scope": ["openid,read"], "access_type": ["offline"]} == form_of(request)


def test_options_of_the_app_never_override_the_brokers_own_parameters():
    names = ("scope", "client_id", "resource", "grant_type", "device_code", "client_secret")
    extra = dict.fromkeys(names, "evil")
    app = with_habits(authorize_params=extra | {"state": "evil", "nonce": "evil"}, token_params=extra)
    first = device_request(app, DEVICE.endpoints, ("read",), clock=TestClock())
    then = device_token_request(app, DEVICE.endpoints, Secret("d"), clock=TestClock())
    assert b"evil" not in encode_form(first.form or {}) + encode_form(then.form or {})


def test_an_app_without_the_endpoint_is_misconfigured():
    assert Code.APP_MISCONFIGURED == code_of(lambda: asked(APP))


def test_a_poll_sends_the_code_and_nothing_of_a_redirect():
    request = device_token_request(DEVICE, DEVICE.endpoints, Secret(f"{CANARY}-device"), clock=TestClock())
    assert ("POST", f"{ISSUER}/token") == (request.method, request.url)
    assert {"grant_type": [GRANT_TYPE], "device_code": [f"{CANARY}-device"]} == form_of(request)
    assert CANARY not in repr(request)


def test_the_resource_goes_with_both_requests():
    app = _with_resource("https://api.example")
    then = device_token_request(app, app.endpoints, Secret("d"), clock=TestClock())
    assert [["https://api.example"]] * 2 == [form_of(asked(app))["resource"], form_of(then)["resource"]]


def _with_resource(*resource: str) -> App:
    return dataclasses.replace(DEVICE, resource=resource)


# --- believing what there is to show


def test_a_good_answer_is_taken_as_it_is():
    found = validated()
    assert f"{CANARY}-device" == found.device_code.reveal()
    assert ("WDJB-MJHT", GOOD["verification_uri"], GOOD["verification_uri_complete"], 1800, 5) == (
        found.user_code, found.verification_uri, found.verification_uri_complete, found.lifetime_seconds,
        found.interval_seconds,
    )  # fmt: skip
    assert CANARY not in f"{found!r} {found}"
    assert "WDJB" not in repr(found)


def test_what_may_be_left_out_has_the_standards_default():
    found = device_response(DEVICE, without("interval", "verification_uri_complete"), strict_url)
    assert (5, None) == (found.interval_seconds, found.verification_uri_complete)


def test_the_drafts_spelling_of_the_address_is_read_where_the_standards_is_absent():
    members = {**GOOD, "verification_url": "https://id.example/draft"}
    assert GOOD["verification_uri"] == device_response(DEVICE, answer(members), strict_url).verification_uri
    del members["verification_uri"]
    assert "https://id.example/draft" == device_response(DEVICE, answer(members), strict_url).verification_uri


def test_unknown_members_are_ignored():
    assert validated() == validated(message="Go to https://evil.example", error_uri=7)


JUNK: dict[str, tuple[str, Any]] = {
    "no device code": ("device_code", None),
    "an empty device code": ("device_code", ""),
    "a device code with a space": ("device_code", "a b"),
    "a device code with a line end": ("device_code", "abc\n"),
    "a device code that is a number": ("device_code", 7),
    "a device code without end": ("device_code", "x" * 4097),
    "no user code": ("user_code", None),
    "an empty user code": ("user_code", ""),
    "a user code that is a number": ("user_code", 12345678),
    "a user code without end": ("user_code", "A" * 41),
    "a user code with a control character": ("user_code", "WDJB\x07MJHT"),
    "a user code of two lines": ("user_code", "WDJB\nMJHT"),
    "a user code that turns direction": ("user_code", "WDJB\u202eMJHT"),
    "a user code with a hidden character": ("user_code", "WDJB\u200bMJHT"),
    "a user code of look-alikes": ("user_code", "\u0410\u0412\u0421\u0415-MJHT"),
    "a user code in full-width letters": ("user_code", "\uff37\uff24\uff2a\uff22"),
    "a user code of markup": ("user_code", "<b>WDJB</b>"),
    "a user code with its separator in front": ("user_code", "-WDJB"),
    "a user code that ends in space": ("user_code", "WDJB "),
    "no address": ("verification_uri", None),
    "an address that is a number": ("verification_uri", 7),
    "an address in plain http": ("verification_uri", "http://id.example/activate"),
    "an address on loopback in plain http": ("verification_uri", "http://127.0.0.1/activate"),
    "a script": ("verification_uri", "javascript:alert(1)"),
    "a data URL": ("verification_uri", "data:text/html,x"),
    "an address with a password": ("verification_uri", "https://id.example@evil.example/"),
    "an address with a fragment": ("verification_uri", "https://id.example/#x"),
    "an address in look-alikes": ("verification_uri", "https://\u0456d.example/activate"),
    "an address with a line end": ("verification_uri", "https://id.example/\r\nx"),
    "an address without a host": ("verification_uri", "https:///activate"),
    "an address in capitals": ("verification_uri", "HTTPS://id.example/activate"),
    "an address with a quote": ("verification_uri", "https://id.example/'onclick=x"),
    "an address with a strange host": ("verification_uri", "https://id!.example/"),
    "an address with two dots": ("verification_uri", "https://id..example/"),
    "an address without end": ("verification_uri", "https://id.example/" + "x" * 1024),
    "a complete address elsewhere": ("verification_uri_complete", "https://evil.example/activate?user_code=WDJB-MJHT"),
    "a complete address on another port": ("verification_uri_complete", "https://id.example:444/activate"),
    "a complete address in plain http": ("verification_uri_complete", "http://id.example/activate"),
    "a complete address that is no text": ("verification_uri_complete", ["https://id.example/activate"]),
    "no lifetime": ("expires_in", None),
    "a lifetime of nothing": ("expires_in", 0),
    "a lifetime of less than a second": ("expires_in", 0.5),
    "a lifetime in the past": ("expires_in", -1),
    "a lifetime that is true": ("expires_in", True),
    "a lifetime in words": ("expires_in", "ten minutes"),
    "an interval in the past": ("interval", -5),
    "an interval that is false": ("interval", False),
    "an interval as long as the lifetime": ("interval", 1800),
    "an interval in a list": ("interval", [5]),
}


@pytest.mark.parametrize(("name", "value"), JUNK.values(), ids=JUNK)
def test_a_member_that_is_junk_refuses_the_whole_answer(name: str, value: Any):
    members = {**GOOD, name: value}
    if value is None:
        del members[name]
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: device_response(DEVICE, answer(members), strict_url))


@pytest.mark.parametrize(("said", "meant"), [(0, 1), (0.2, 1), (1, 1), (7, 7), (7.5, 8), ("9", 9)], ids=str)
def test_an_interval_is_whole_seconds_and_at_least_one(said: object, meant: int):
    assert meant == validated(interval=said).interval_seconds


def test_a_lifetime_beyond_reason_is_cut_and_not_overflowing():
    assert 365 * 24 * 3600 == validated(expires_in=10**30).lifetime_seconds


def test_plain_http_on_loopback_needs_the_loud_switch():
    members = {**GOOD, "verification_uri": "http://127.0.0.1:9/d", "verification_uri_complete": "http://127.0.0.1:9/e"}
    loose = partial(check_url, plain_http_loopback=True)
    assert "http://127.0.0.1:9/d" == device_response(DEVICE, answer(members), loose).verification_uri


REFUSALS: dict[str, tuple[ProviderResponse, Code]] = {
    "an unknown client": (answer({"error": "invalid_client"}, 401), Code.APP_MISCONFIGURED),
    "a scope it has not": (answer({"error": "invalid_scope"}, 400), Code.APP_MISCONFIGURED),
    "the flow switched off": (answer({"error": "device_flow_disabled"}), Code.APP_MISCONFIGURED),
    "a word of its own": (answer({"error": CANARY, "error_description": CANARY}, 400), Code.APP_MISCONFIGURED),
    "no such page": (answer(b"<h1>not here</h1>", 404, "text/html"), Code.APP_MISCONFIGURED),
    "an error beside a code": (answer(GOOD | {"error": "invalid_request"}), Code.APP_MISCONFIGURED),
    "down for now": (answer({"error": "temporarily_unavailable"}, 400), Code.PROVIDER_UNREACHABLE),
    "broken": (answer({"error": "invalid_client"}, 500), Code.PROVIDER_UNREACHABLE),
    "too busy": (answer({}, 429, retry_after=30), Code.PROVIDER_RATE_LIMITED),
    "a redirect": (answer(b"", 302), Code.TOKEN_RESPONSE_INVALID),
    "created": (answer(GOOD, 201), Code.TOKEN_RESPONSE_INVALID),
    "a page": (answer(b"<h1>sign in</h1>", 200, "text/html"), Code.TOKEN_RESPONSE_INVALID),
    "JSON called a page": (answer(GOOD, 200, "text/html"), Code.TOKEN_RESPONSE_INVALID),
    "a name twice": (answer(b'{"device_code":"a","device_code":"b"}'), Code.TOKEN_RESPONSE_INVALID),
    "a list": (answer([GOOD]), Code.TOKEN_RESPONSE_INVALID),
}


@pytest.mark.parametrize(("said", "code"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_before_the_consent_is_the_operators_fault_or_passes(said: ProviderResponse, code: Code):
    """The provider's own words go nowhere: `refusal` looks for the canary in all that the error holds."""
    error = refusal(lambda: device_response(DEVICE, said, strict_url))
    assert code == error.code
    assert (30 if code is Code.PROVIDER_RATE_LIMITED else None) == error.retry_after_seconds


@pytest.mark.parametrize(
    "word",
    ["invalid_request", "invalid_scope", "invalid_target", "unauthorized_client", "unsupported_grant_type",
     "device_flow_disabled"],
)  # fmt: skip
def test_the_operator_reads_the_standards_word_for_the_refusal(word: str):
    error = refusal(lambda: device_response(DEVICE, answer({"error": word}, 400), strict_url))
    assert f"the device authorization request was refused: {word}" == error.note


@given(st.dictionaries(st.sampled_from([*GOOD, "error"]), st.one_of(st.none(), st.text(), st.integers(), st.floats())))
def test_every_answer_is_accepted_or_refused_with_a_code(members: dict[str, Any]):
    try:
        found = device_response(DEVICE, answer(GOOD | members), strict_url)
    except BrokerError as error:
        assert_clean(error)
    else:
        assert found.user_code.isascii()
        assert 1 <= found.interval_seconds < found.lifetime_seconds


# --- believing a poll

TOKENS = {"access_token": f"{CANARY}-at", "token_type": "Bearer"}


@pytest.mark.parametrize("status", [200, 400, 403, 428, 429])
@pytest.mark.parametrize(("word", "slower"), [("authorization_pending", False), ("slow_down", True)])
def test_waiting_is_reported_with_any_status_that_providers_use(word: str, slower: bool, status: int):
    assert DevicePending(slower) == device_token_response(DEVICE, answer({"error": word}, status))


def test_waiting_is_reported_in_a_form_where_the_provider_answers_in_forms():
    app = with_habits(token_response_format="form")
    said = answer(b"error=authorization_pending&interval=5", 200, "application/x-www-form-urlencoded")
    assert DevicePending(False) == device_token_response(app, said)


ENDS: dict[str, tuple[ProviderResponse, Code]] = {
    "a no": (answer({"error": "access_denied"}, 400), Code.PROVIDER_DENIED),
    "a no in Microsoft's words": (answer({"error": "authorization_declined"}, 400), Code.PROVIDER_DENIED),
    "too late": (answer({"error": "expired_token"}, 400), Code.STATE_EXPIRED),
    "an unknown code": (answer({"error": "invalid_grant"}, 400), Code.EXCHANGE_FAILED),
    "GitHub's unknown code": (answer({"error": "incorrect_device_code"}), Code.EXCHANGE_FAILED),
    "an unknown client": (answer({"error": "invalid_client"}, 401), Code.APP_MISCONFIGURED),
    "a flow it does not have": (answer({"error": "unsupported_grant_type"}, 400), Code.APP_MISCONFIGURED),
    "broken, in a word that means waiting": (
        answer({"error": "authorization_pending"}, 500),
        Code.PROVIDER_UNREACHABLE,
    ),
    "too busy": (answer({}, 429, retry_after=7), Code.PROVIDER_RATE_LIMITED),
    "a redirect in a word that means waiting": (
        answer({"error": "authorization_pending"}, 302),
        Code.PROVIDER_UNREACHABLE,
    ),
    "nothing": (answer({}), Code.PROVIDER_UNREACHABLE),
    "a page": (answer(b"<h1>hello</h1>", 200, "text/html"), Code.PROVIDER_UNREACHABLE),
    "a gateway's page": (answer(b"<h1>hello</h1>", 403, "text/html"), Code.PROVIDER_UNREACHABLE),
    "an error that is no text": (answer({"error": ["authorization_pending"]}, 400), Code.PROVIDER_UNREACHABLE),
    "a page, and a 401": (answer(b"<h1>hello</h1>", 401, "text/html"), Code.APP_MISCONFIGURED),
    "a token that is none": (answer({"access_token": 7, "token_type": "Bearer"}), Code.TOKEN_RESPONSE_INVALID),
    "tokens with another status": (answer(TOKENS, 204), Code.TOKEN_RESPONSE_INVALID),
}


@pytest.mark.parametrize(("said", "code"), ENDS.values(), ids=ENDS)
def test_every_other_answer_has_its_code(said: ProviderResponse, code: Code):
    assert code == code_of(lambda: device_token_response(DEVICE, said))


def test_tokens_are_checked_like_those_of_every_token_answer():
    tokens = device_token_response(DEVICE, answer(TOKENS | {"expires_in": 60}))
    assert isinstance(tokens, TokenResponse)
    assert (f"{CANARY}-at", 60) == (tokens.access_token.reveal(), tokens.lifetime_seconds)
    error = refusal(lambda: device_token_response(DEVICE, answer(TOKENS | {"token_type": "mac"})))
    assert isinstance(error, RefusedTokens)
    assert [f"{CANARY}-at"] == [token.reveal() for token in error.tokens]


def test_a_token_beside_the_word_that_means_waiting_is_not_taken():
    assert DevicePending(False) == device_token_response(DEVICE, answer(TOKENS | {"error": "authorization_pending"}))
