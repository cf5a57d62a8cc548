"""Any answer of a provider (cases 19-34): every parser takes it or refuses it with its own code, and neither
crashes nor loses a refresh token that came along."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from joserfc import jws

from oauthbroker.authorization.login_claims import _check_recent
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import LifetimeForm, Revocation
from oauthbroker.protocol.answer_checks import date_of, retry_after_seconds
from oauthbroker.protocol.client_credentials import client_credentials_response
from oauthbroker.protocol.device_messages import device_response, device_token_response
from oauthbroker.protocol.id_token import UnverifiedIdToken, VerifiedClaims, read_id_token, verify_id_token
from oauthbroker.protocol.identity import render
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.metadata import keys_response, metadata_response
from oauthbroker.protocol.network.transport import check_url
from oauthbroker.protocol.par import par_response
from oauthbroker.protocol.refresh_messages import RefreshRefused, refresh_response
from oauthbroker.protocol.revocation_messages import revoke_response
from oauthbroker.protocol.token_endpoint import TokenResponse, token_response
from oauthbroker.protocol.token_fields import YEAR_SECONDS
from oauthbroker.protocol.userinfo import userinfo_response
from tests.unit.protocol.id_token_kit import KEYS, NONCE, NOW, RSA, T, b64
from tests.unit.protocol.kit import APP, ISSUER, with_habits

HUGE = 10**400
NUMBERS = st.sampled_from(
    [0, 1, -1, 2**31, 2**63, 2**64, HUGE, -HUGE, 10**4000, -(10**4000), 1.5, -0.0, 1e308, -1e308, 5e-324, 1e15, T]
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", "\x00", "\u202e", "0" * 5000, "9" * 19, "9" * 21, "-1", "1e999", "NaN", "\u0661\u0662"]),
    st.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59", "2026-11-21T12:00:00Z"]),
    st.sampled_from(["https://[::1", "http://x:99999/", "https://x.example/a?b=%zz", "https://x.example:a/", "//", "urn:x:"]),
    st.sampled_from(["invalid_grant", "invalid_client", "invalid_request", "authorization_pending", "slow_down"]),
    st.sampled_from(["bearer", "Bearer", ISSUER, "openid", "read write", "a.b.c", "S256", "RSA", "sig", "E30.E30.E30"]),
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
DATES = st.one_of(st.none(), st.sampled_from([NOW, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]))
STATUSES = st.sampled_from([100, 200, 200, 200, 201, 204, 302, 400, 401, 403, 404, 429, 500, 503, 999])
FORMS: tuple[str, ...] = get_args(LifetimeForm)
PROVIDER = {Code.PROVIDER_UNREACHABLE, Code.PROVIDER_RATE_LIMITED}
TOKEN = {*PROVIDER, Code.TOKEN_RESPONSE_INVALID, Code.APP_MISCONFIGURED, Code.EXCHANGE_FAILED}
MEMBERS = (
    "access_token", "refresh_token", "id_token", "token_type", "expires_in", "scope", "error", "ok", "authed_user",
    "device_code", "user_code", "verification_uri", "verification_uri_complete", "interval", "request_uri", "issuer",
    "authorization_endpoint", "token_endpoint", "jwks_uri", "code_challenge_methods_supported", "keys", "sub", "id",
    "authorization_response_iss_parameter_supported", "require_pushed_authorization_requests",
)  # fmt: skip
# What makes a sound answer, so that a generated member is the only strange one more often than not.
SOUND: dict[str, Any] = {
    "access_token": "at", "token_type": "Bearer", "device_code": "dc", "user_code": "ABCD-EFGH",
    "verification_uri": "https://id.example/device", "request_uri": "urn:x:1", "issuer": ISSUER, "sub": "S1", "keys": [],
}  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Mostly an object of members that some check reads; sometimes other JSON, or none."""
    strange = draw(st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=4))
    sound = SOUND if draw(st.booleans()) else {}
    kind = draw(st.sampled_from(["object", "object", "object", "value", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=40))
    return json.dumps({**sound, **strange} if kind == "object" else draw(VALUES)).encode()


LABELS = st.sampled_from(["application/json", "application/json", "application/x-www-form-urlencoded", "text/html", ""])
ANSWERS = st.builds(
    ProviderResponse,
    status=STATUSES,
    content_type=LABELS,
    retry_after=st.sampled_from([None, 1, 3600]),
    body=bodies(),
    date=DATES,
)
APPS = st.one_of(
    st.just(APP),
    st.builds(with_habits, lifetime_form=st.sampled_from(FORMS)),
    st.builds(with_habits, token_path=st.just(("authed_user",)), scopeless=st.booleans()),
    st.builds(with_habits, token_response_format=st.just("form"), error_members=st.just(("error", "authed_user.id"))),
    st.builds(with_habits, token_response_format=st.just("list"), token_path=st.sampled_from([(), ("0",), ("a", "0")])),
    st.builds(with_habits, ok_members=st.dictionaries(st.sampled_from(["code", "a.b"]), st.booleans() | st.integers())),
    st.builds(with_habits, token_type_optional=st.just(True), error_words=st.just({"0": "invalid_grant"})),
)


def lifetime(value: str, form: str = "seconds") -> ProviderResponse:
    body = b'{"access_token": "at", "token_type": "Bearer", "refresh_token": "rt-2", "expires_in": %s}' % value.encode()
    assert form in FORMS
    return ProviderResponse(status=200, content_type="application/json", retry_after=None, body=body, date=NOW)


def check(validate: Callable[[], object], codes: set[Code]) -> object:
    """What the check takes, or None for a refusal with one of `codes`."""
    refused: BrokerError | None = None
    try:
        return validate()
    except BrokerError as error:
        refused = error
    assert refused.code in codes
    assert refused.__context__ is None or isinstance(refused.__context__, BrokerError)
    return None


@pytest.mark.case("28")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value", ["-1" + "0" * 400, "1" + "0" * 400, "-1e308", "1e308", "-1" + "0" * 4000, '"%s"' % ("9" * 20)]
)
def test_a_lifetime_beyond_all_measure_is_clamped_both_ways(form: str, value: str):
    app = with_habits(lifetime_form=form)
    taken = check(lambda: token_response(app, lifetime(value, form)), {Code.TOKEN_RESPONSE_INVALID})
    assert isinstance(taken, TokenResponse)
    assert taken.unusual == (() if form == "none" else ("lifetime",))
    ends = {None} if form in {"none", "iso", "date"} else {0} if value.startswith("-") else {YEAR_SECONDS}
    assert taken.lifetime_seconds in ends


@pytest.mark.slow
@pytest.mark.case("20")
@given(APPS, ANSWERS)
@example(with_habits(lifetime_form="epochSeconds"), lifetime(f"-1{'0' * 400}"))
def test_a_token_answer_is_taken_or_refused_and_never_a_crash(app: App, answer: ProviderResponse):
    validators: list[Callable[[App, ProviderResponse], object]] = [token_response, client_credentials_response]
    for validate in validators:
        taken = check(partial(validate, app, answer), {*TOKEN, Code.SCOPE_EXCEEDED})
        if isinstance(taken, TokenResponse) and taken.lifetime_seconds is not None:
            assert 0 <= taken.lifetime_seconds <= YEAR_SECONDS
    check(lambda: device_token_response(app, answer), {*TOKEN, Code.PROVIDER_DENIED, Code.STATE_EXPIRED})


@pytest.mark.slow
@given(APPS, ANSWERS)
def test_an_answer_to_a_refresh_is_taken_or_refused_and_its_refresh_token_is_not_lost(
    app: App, answer: ProviderResponse
):
    refresh_state = {*TOKEN, Code.REAUTH_REQUIRED, Code.SCOPE_EXCEEDED}
    check(lambda: refresh_response(app, answer), refresh_state)


@pytest.mark.case("28")
@given(VALUES, st.sampled_from(["expires_in", "scope", "token_type", "id_token", "authed_user"]))
def test_a_rotated_refresh_token_is_kept_as_a_spare_beside_any_other_member(value: Any, member: str):
    body = {"access_token": "at-2", "token_type": "Bearer", "refresh_token": "rt-2", member: value}
    answer = ProviderResponse(
        status=200, content_type="application/json", retry_after=None, body=json.dumps(body).encode(), date=NOW
    )
    for form in FORMS:
        try:
            taken = refresh_response(with_habits(lifetime_form=form), answer)
            came = taken.refresh_token
        except RefreshRefused as refused:
            came = refused.spare
        assert came == Secret("rt-2")


UNREADABLE = pytest.mark.parametrize(
    ("label", "members"),
    [
        ("application/json", '"expires_in": -1' + "0" * 5000),
        ("application/json", '"refresh_token_expires_in": 1' + "0" * 5000),
        ("application/json", '"expires_in": 1e400'),
        ("application/json", '"expires_in": NaN'),
        ("application/json", '"expires_in": -Infinity'),
        ("application/json", '"expires_in": 60, "expires_in": 60'),
        ("application/json", '"note": "\\ud83d"'),
        ("application/json", '"deep": ' + "[" * 40 + "]" * 40),
        ("text/html", '"expires_in": 60, "expires_in": 60'),
    ],
)


def unreadable(label: str, members: str) -> ProviderResponse:
    """Tokens in a document that is refused as a whole."""
    body = f'{{"access_token": "at-2", "token_type": "Bearer", "refresh_token": "rt-2", {members}}}'
    return ProviderResponse(status=200, content_type=label, retry_after=None, body=body.encode(), date=NOW)


@pytest.mark.case("20", "28")
@UNREADABLE
def test_a_document_that_is_refused_loses_no_rotated_refresh_token(label: str, members: str):
    with pytest.raises(RefreshRefused) as refused:
        refresh_response(APP, unreadable(label, members))
    assert (Code.TOKEN_RESPONSE_INVALID, Secret("rt-2")) == (refused.value.code, refused.value.spare)


@pytest.mark.case("20")
@UNREADABLE
def test_a_device_code_that_brought_such_a_document_is_used_and_no_longer_polled(label: str, members: str):
    with pytest.raises(BrokerError) as refused:
        device_token_response(APP, unreadable(label, members))
    assert Code.TOKEN_RESPONSE_INVALID is refused.value.code


@pytest.mark.slow
@given(ANSWERS)
def test_a_device_code_a_pushed_request_and_a_revocation_are_taken_or_refused(answer: ProviderResponse):
    url = partial(check_url, plain_http_loopback=False)
    check(lambda: device_response(APP, answer, url), TOKEN)
    check(lambda: par_response(APP, answer), {*PROVIDER, Code.APP_MISCONFIGURED})
    for way in (Revocation(), Revocation(ok_field="ok", error_field="authed_user", dead_statuses=(404,))):
        app = with_habits()
        object.__setattr__(app, "revocation", way)
        check(lambda app=app: revoke_response(app, answer), {*PROVIDER, Code.APP_MISCONFIGURED})  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.case("34")
@given(
    ANSWERS,
    st.sampled_from(["x:{sub}", "x:{id}:{authed_user.id}", "x:{*id}", "{authed_user.0.id}", "x:{https://x/id}"]),
)
def test_facts_about_a_person_are_taken_or_refused(answer: ProviderResponse, template: str):
    facts = check(lambda: userinfo_response(answer, lists=True), {*PROVIDER, Code.SUBJECT_UNVERIFIABLE})
    if facts is not None:
        check(lambda: render(template, facts), {Code.SUBJECT_UNVERIFIABLE})


@pytest.mark.slow
@pytest.mark.case("33")
@given(ANSWERS)
def test_what_a_provider_says_about_itself_is_taken_or_refused(answer: ProviderResponse):
    check(lambda: metadata_response(ISSUER, "", answer), {*PROVIDER, Code.APP_MISCONFIGURED})
    check(lambda: keys_response(answer), {*PROVIDER, Code.APP_MISCONFIGURED})


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["kty", "n", "e", "kid", "alg", "use", "crv", "x", "y", "k"]), VALUES))
def test_a_key_that_is_none_is_passed_over(entry: dict[str, Any]):
    body = json.dumps({"keys": [entry, {"kty": entry.get("kty", "RSA")}]}).encode()
    assert isinstance(
        keys_response(ProviderResponse(status=200, content_type="application/json", retry_after=None, body=body)), tuple
    )


def sealed(header: dict[str, Any], payload: bytes) -> Secret:
    """Signed with a key of the provider's, under any header."""
    first = b64(json.dumps(header).encode()) + "." + b64(payload)
    signature = jws.JWSRegistry.algorithms["RS256"].sign(first.encode(), RSA)
    return Secret(f"{first}.{b64(signature)}")


CLAIM_NAMES = ("iss", "aud", "azp", "exp", "nbf", "iat", "sub", "nonce", "at_hash", "auth_time", "tid")


@pytest.mark.slow
@pytest.mark.case("32")
@given(
    st.dictionaries(st.sampled_from(CLAIM_NAMES), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["alg", "kid", "crit", "typ", "b64", "jwk", "x"]), VALUES, max_size=2),
    st.sampled_from(["", "https://id.example/{tid}"]),
)
@example({"auth_time": -HUGE, "iat": float(T)}, {}, "")
def test_a_signed_id_token_with_any_claims_is_taken_or_refused(
    claims: dict[str, Any], header: dict[str, Any], template: str
):
    sound = {"iss": ISSUER, "aud": "client-1", "sub": "S1", "exp": T + 300, "iat": T, "nonce": "nonce-1"}
    head = {"alg": "RS256", "kid": "r1", **header}
    token = sealed(head, json.dumps({**sound, **claims}).encode())
    read = check(lambda: read_id_token(token), {Code.ID_TOKEN_INVALID})
    if not isinstance(read, UnverifiedIdToken):
        return
    validate = partial(verify_id_token, with_habits(issuer_template=template), read, issuer=ISSUER, keys=KEYS)
    taken = check(
        lambda: validate(nonce=NONCE, access_token=Secret("at"), now=NOW, sent_at=NOW), {Code.ID_TOKEN_INVALID}
    )
    if taken is not None:
        check(lambda: _check_recent(VerifiedClaims(dict(taken)), 300), {Code.ID_TOKEN_INVALID})  # type: ignore[call-overload]


@given(st.text(alphabet=st.characters(codec="latin-1"), max_size=60), st.text(max_size=60))
def test_junk_in_the_headers_that_carry_times_is_no_time(header: str, date: str):
    assert date_of(header) is None or date_of(header) is not None
    assert retry_after_seconds(header, date, NOW) in {None, *range(1, 3601)}


@pytest.mark.parametrize("date", ["", "soon", "Mon, 01 Jun 2026 12:00:00"])
def test_a_date_to_ask_again_counts_from_our_clock_where_the_answer_has_no_date_of_its_own(date: str):
    """RFC 9110 section 6.6.1: a recipient takes the time at which the answer came."""
    assert 30 == retry_after_seconds(format_datetime(NOW + timedelta(seconds=30), usegmt=True), date, NOW)
