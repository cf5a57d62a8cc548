"""The checks of a callback, one after another: what each refuses, which one comes first, and what passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret, digest_of
from oauthbroker.model.apps import Owner
from oauthbroker.protocol.callback_checks import (
    MAX_CODE,
    MAX_ERROR,
    MAX_QUERY,
    CallbackParams,
    ValidCallback,
    check_response,
    confirmed_callback,
    cookie_fits,
    needs_cookie,
    parse_callback,
    validate_callback,
)
from oauthbroker.records import AuthSession
from oauthbroker.records.auth_session import Claim
from oauthbroker.records.pending_code import PENDING_CODE_SECONDS, PendingCode
from tests.kit.samples import NOW, app_with, session_with

STATE = "L" * 22 + "s" * 43
COOKIE = "a-browser's-cookie"
ISSUER = "https://acme.example"


def code_of(act: Callable[[], object]) -> Code | None:
    """Return the code that it raises; None where it raises nothing."""
    try:
        act()
    except BrokerError as error:
        return error.code
    return None


def parsed(query: str) -> CallbackParams:
    return parse_callback(query.encode())


# Parsing


def test_the_query_which_holds_the_code_is_neither_printed_nor_compared() -> None:
    queries = [f"code=the-code&state={STATE}{more}" for more in ("", "&more=1")]
    for one, two in (
        (parsed(queries[0]), parsed(queries[1])),
        tuple(ValidCallback(Secret("c"), query=each.encode()) for each in queries),
    ):
        assert one == two
        assert "the-code" not in f"{one!r}{two!r}"
    assert (b"", b"") == (CODE.query, ValidCallback(Secret("c")).query)


@pytest.mark.case("1", "7")
@pytest.mark.parametrize(
    ("state", "accepted"),
    [
        (STATE, True),
        ("-_" + STATE[2:], True),
        (STATE[1:], False),
        (STATE + "s", False),
        ("", False),
        ("+" + STATE[1:], False),
        ("é" + STATE[1:], False),
        (STATE + "%0A", False),
    ],
)
def test_a_state_is_65_characters_of_base64url(state: str, accepted: bool) -> None:
    expected = None if accepted else Code.CALLBACK_MALFORMED
    assert expected == code_of(lambda: parsed(f"code=c&state={state}"))


def test_a_state_begins_with_the_locator_of_its_session() -> None:
    params = parsed(f"code=c&state={'A' * 22}{'b' * 43}")
    assert "A" * 22 == params.locator
    assert "A" * 22 + "b" * 43 == params.state.reveal()


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        (f"spapi_oauth_code=c&state={STATE}&selling_partner_id=A1", None),
        (f"spapi_oauth_code=c&state={STATE}&code=other", None),
        (f"spapi_oauth_code=c&spapi_oauth_code=c&state={STATE}", "the callback's spapi_oauth_code"),
        (f"spapi_oauth_code=c&spapi%5foauth_code=d&state={STATE}", "the callback's spapi_oauth_code"),
        (f"code=c&state={STATE}", "the callback has no spapi_oauth_code"),
        (f"spapi_oauth_code=&state={STATE}", "the callback has no spapi_oauth_code"),
        ("spapi_oauth_code=c", "the callback has no state"),
        ("spapi_oauth_code=c&state=x", "the callback's state"),
        (f"spapi_oauth_code=c&state={STATE}&state={STATE}", "the callback's state"),
        (f"spapi_oauth_code={'c' * (MAX_CODE + 1)}&state={STATE}", "the callback's spapi_oauth_code"),
    ],
)
def test_a_code_under_another_name_passes_the_same_checks(query: str, refused: str | None) -> None:
    if refused is None:
        assert "c" == (parse_callback(query.encode(), "spapi_oauth_code").code or Secret("")).reveal()
        return
    with pytest.raises(BrokerError) as error:
        parse_callback(query.encode(), "spapi_oauth_code")
    assert (Code.CALLBACK_MALFORMED, refused) == (error.value.code, error.value.note)


def test_a_code_under_another_name_is_none_where_no_app_says_so() -> None:
    assert Code.CALLBACK_MALFORMED is code_of(lambda: parsed(f"spapi_oauth_code=c&state={STATE}"))
    twice = f"code=c&spapi_oauth_code=c&spapi_oauth_code=d&state={STATE}"
    assert code_of(lambda: parsed(twice)) is None


@pytest.mark.case("8")
@pytest.mark.parametrize(
    ("code", "accepted"),
    [
        ("c", True),
        ("a+b", True),
        ("~", True),
        ("%20", True),
        ("x" * MAX_CODE, True),
        ("x" * (MAX_CODE + 1), False),
        ("", False),
        ("%C3%A9", False),
        ("%7F", False),
        ("%00", False),
        ("%FF", False),
        ("c%C2%A1", False),
    ],
)
def test_a_code_is_visible_ascii_and_bounded(code: str, accepted: bool) -> None:
    expected = None if accepted else Code.CALLBACK_MALFORMED
    assert expected == code_of(lambda: parsed(f"state={STATE}&code={code}"))


def test_a_query_without_code_and_error_is_malformed() -> None:
    assert Code.CALLBACK_MALFORMED is code_of(lambda: parsed(f"state={STATE}"))


def test_values_are_decoded_as_a_form_is() -> None:
    params = parsed(f"st%61te={STATE}&code=a+b%2Bc&iss={quote(ISSUER, safe='')}")
    assert params.code is not None
    assert "a b+c" == params.code.reveal()
    assert ISSUER == params.issuer
    assert None is params.refused


@pytest.mark.case("7")
@pytest.mark.parametrize("name", ["state", "code", "error", "iss", "admin_consent", "setup_action"])
def test_no_parameter_that_is_read_may_come_twice(name: str) -> None:
    query = f"state={STATE}&code=c&iss=i&admin_consent=no&setup_action=no"
    once = {"state": STATE, "error": "access_denied"}.get(name, "x")
    if name == "error":
        query += f"&error={once}"
    assert Code.CALLBACK_MALFORMED is code_of(lambda: parsed(f"{query}&{name}={once}"))
    assert None is code_of(lambda: parsed(query))


def test_parameters_that_are_not_read_may_come_twice_and_hold_anything() -> None:
    assert None is code_of(lambda: parsed(f"x=1&x=%FF&%FF=2&scope=%00&state={STATE}&code=c"))


@pytest.mark.case("8")
@pytest.mark.parametrize(
    ("length", "expected"), [(MAX_QUERY, None), (MAX_QUERY + 1, Code.REQUEST_TOO_LARGE)], ids=["fits", "does not"]
)
def test_a_query_is_bounded_in_size(length: int, expected: Code | None) -> None:
    query = f"state={STATE}&code=c&x="
    assert expected == code_of(lambda: parsed(query + "x" * (length - len(query))))


def test_the_bounds_are_as_documented() -> None:
    assert (32_768, 4096, 128) == (MAX_QUERY, MAX_CODE, MAX_ERROR)


@pytest.mark.parametrize(
    ("error", "expected"),
    [("x" * MAX_ERROR, None), ("x" * (MAX_ERROR + 1), Code.CALLBACK_MALFORMED)],
    ids=["fits", "does not"],
)
def test_an_error_is_bounded_in_size(error: str, expected: Code | None) -> None:
    assert expected == code_of(lambda: parsed(f"state={STATE}&error={error}"))


@pytest.mark.parametrize("name", ["iss", "state", "code"])
def test_only_an_error_has_the_bound_of_errors(name: str) -> None:
    """An issuer of 300 characters is one, and a code of 300 characters is usual."""
    query = f"state={STATE}&code={'c' * 300}&iss={'i' * 300}"
    assert f"{name}=" in query
    assert None is code_of(lambda: parsed(query))


@pytest.mark.case("9")
def test_an_error_beats_a_code_and_keeps_state_and_issuer() -> None:
    params = parsed(f"code=c&state={STATE}&error=access_denied&iss=there")
    assert None is params.code
    assert params.refused is not None
    assert Code.PROVIDER_DENIED is params.refused.code
    assert (STATE, "there") == (params.state.reveal(), params.issuer)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("error=server_error", Code.PROVIDER_UNREACHABLE),
        ("error=access_denied&error_description=AADSTS90094%3A+more", Code.ADMIN_CONSENT_NEEDED),
        ("error=", Code.PROVIDER_DENIED),
        ("setup_action=request", Code.ADMIN_CONSENT_NEEDED),
        ("setup_action=request&code=", Code.ADMIN_CONSENT_NEEDED),
        ("setup_action=request&error=server_error", Code.PROVIDER_UNREACHABLE),
        ("admin_consent=True&error=server_error", Code.PROVIDER_UNREACHABLE),
    ],
)
def test_the_meaning_of_an_error_is_kept_for_after_the_checks(query: str, expected: Code) -> None:
    params = parsed(f"state={STATE}&{query}")
    assert params.refused is not None
    assert (None, expected) == (params.code, params.refused.code)


def test_an_installation_with_a_code_is_no_error() -> None:
    for action in ("request", "install"):
        params = parsed(f"state={STATE}&setup_action={action}&code=c")
        assert None is params.refused
        assert params.code is not None


def test_another_setup_action_without_a_code_is_malformed() -> None:
    assert Code.CALLBACK_MALFORMED is code_of(lambda: parsed(f"state={STATE}&setup_action=install"))


@pytest.mark.parametrize("state", ["", "state=short&", f"state={STATE}&"])
@pytest.mark.parametrize("said", ["True", "true", "TRUE", "true&code="])
def test_the_consent_of_an_administrator_alone_is_told_with_any_state(state: str, said: str) -> None:
    assert Code.CONNECTION_UNFINISHED is code_of(lambda: parsed(f"{state}admin_consent={said}"))


def test_the_consent_of_an_administrator_beside_a_code_is_a_callback() -> None:
    assert None is code_of(lambda: parsed(f"state={STATE}&admin_consent=True&code=c"))
    assert Code.CALLBACK_MALFORMED is code_of(lambda: parsed(f"state={STATE}&admin_consent=False"))


# The checks against the session


def opened(**changes: Any) -> AuthSession:
    """A session whose browser has the cookie."""
    session = session_with()
    attempt = replace(session.attempt, cookie=digest_of(COOKIE))
    return replace(session, **{"attempt": attempt, **changes})


CODE = CallbackParams(state=Secret(STATE), code=Secret("c"), issuer=None)
DENIED = replace(CODE, code=None, refused=BrokerError(Code.PROVIDER_DENIED))
CLAIM = Claim("another", NOW + timedelta(minutes=1))
PENDING = PendingCode(
    kind="runtimeConfirm", code=Secret("kept"), proof=Secret("p"), until=NOW + timedelta(seconds=PENDING_CODE_SECONDS)
)


def checked(params: CallbackParams = CODE, **changes: Any) -> Code | str:
    """Return the code of the refusal, or the code of the grant that passed."""
    fields: dict[str, Any] = {"session": opened(), "app": app_with(), "cookie": COOKIE, "now": NOW}
    fields |= {"issuer": ISSUER, "issuer_promised": False, **changes}
    try:
        return validate_callback(params, **fields).code.reveal()
    except BrokerError as error:
        return error.code


def test_the_right_callback_passes_with_its_code() -> None:
    assert "c" == checked()


# Each row breaks one check; the order of the rows is the order of the checks.
BROKEN: dict[str, tuple[dict[str, Any], Code]] = {
    "no such session": ({"session": None}, Code.STATE_UNKNOWN),
    "another state": ({"params": replace(CODE, state=Secret("L" * 22 + "x" * 43))}, Code.STATE_UNKNOWN),
    "another app": ({"app": app_with(name="files")}, Code.APP_MISMATCH),
    "an expired session": ({"session": opened(status="expired")}, Code.STATE_EXPIRED),
    "a completed session": ({"session": opened(status="completed")}, Code.STATE_USED),
    "a failed session": ({"session": opened(status="failed")}, Code.STATE_USED),
    "a claimed session": ({"session": opened(claim=CLAIM)}, Code.STATE_USED),
    "a session with a pending code": ({"session": opened(pending_code=PENDING)}, Code.STATE_USED),
    "too late": ({"now": NOW + timedelta(seconds=600)}, Code.STATE_EXPIRED),
    "another browser": ({"cookie": "another"}, Code.OWNER_BINDING_FAILED),
    "a browser without a cookie": ({"cookie": None}, Code.OWNER_BINDING_FAILED),
    "another issuer": ({"params": replace(CODE, issuer="https://evil.example")}, Code.ISSUER_MISMATCH),
    "no issuer where one is promised": ({"issuer_promised": True}, Code.ISSUER_MISMATCH),
    "the user denied": ({"params": DENIED}, Code.PROVIDER_DENIED),
}


def broken(*names: str) -> Code | str:
    """Return the answer to a callback with all these breaks."""
    changes: dict[str, Any] = {}
    for name in names:
        changes |= BROKEN[name][0]
    return checked(**changes)


@pytest.mark.case("2", "3", "4", "5", "6", "10")
@pytest.mark.parametrize("name", BROKEN)
def test_each_check_refuses_with_its_own_code(name: str) -> None:
    assert BROKEN[name][1] is broken(name)


ORDER = list(BROKEN)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for number, first in enumerate(ORDER)
        for second in ORDER[number + 1 :]
        if BROKEN[first][0].keys().isdisjoint(BROKEN[second][0])
    ],
)
def test_of_two_broken_checks_the_earlier_one_refuses(first: str, second: str) -> None:
    """A denial beside a promised issuer that is missing is a denial: some providers leave it out of errors."""
    expected = "the user denied" if (first, second) == ("no issuer where one is promised", "the user denied") else first
    assert BROKEN[expected][1] is broken(first, second)


@pytest.mark.case("4")
@pytest.mark.parametrize(("seconds", "expected"), [(0, "c"), (599, "c"), (600, Code.STATE_EXPIRED)])
def test_a_session_expires_at_its_time(seconds: int, expected: Code | str) -> None:
    assert expected == checked(now=NOW + timedelta(seconds=seconds))


# The browser


@pytest.mark.parametrize(
    ("link", "has_cookie", "expected"),
    [("connect", True, True), ("connect", False, True), ("direct", True, True), ("direct", False, False)],
)
def test_only_a_direct_link_that_set_no_cookie_needs_none(link: str, has_cookie: bool, expected: bool) -> None:
    session = opened(link=link) if has_cookie else session_with(link=link)
    assert expected is needs_cookie(session)
    asked = checked(session=session, cookie=None)
    assert (Code.OWNER_BINDING_FAILED if expected else "c") == asked


@pytest.mark.parametrize("confirmation", ["brokerLogin", "runtimeConfirm", "channelCode"])
def test_with_a_confirmation_a_direct_link_needs_its_cookie_too(confirmation: Any) -> None:
    app = app_with(owner=Owner(binding=confirmation))
    assert Code.OWNER_BINDING_FAILED is checked(session=session_with(link="direct"), app=app, cookie=None)
    assert "c" == checked(session=opened(link="direct"), app=app)


def test_a_cookie_fits_by_its_hash_alone() -> None:
    attempt = opened().attempt
    assert cookie_fits(attempt, COOKIE)
    assert not cookie_fits(attempt, attempt.cookie)
    assert not cookie_fits(attempt, None)
    assert not cookie_fits(session_with().attempt, COOKIE)


# The response


@pytest.mark.case("10")
@pytest.mark.parametrize(
    ("said", "configured", "promised", "expected"),
    [
        (ISSUER, ISSUER, True, "c"),
        (ISSUER, ISSUER, False, "c"),
        (None, ISSUER, False, "c"),
        (None, ISSUER, True, Code.ISSUER_MISMATCH),
        (None, "", False, "c"),
        (ISSUER + "/", ISSUER, False, Code.ISSUER_MISMATCH),
        (ISSUER, "", False, Code.ISSUER_MISMATCH),
        ("", "", False, Code.ISSUER_MISMATCH),
        ("", ISSUER, False, Code.ISSUER_MISMATCH),
    ],
)
def test_a_response_names_the_issuer_that_is_configured(
    said: str | None, configured: str, promised: bool, expected: Code | str
) -> None:
    assert expected == checked(replace(CODE, issuer=said), issuer=configured, issuer_promised=promised)


@pytest.mark.parametrize(
    ("said", "configured", "note"),
    [
        (ISSUER, "", "iss came, and the app has no endpoints.issuer to compare it with"),
        ("https://evil.example", ISSUER, "iss is another issuer"),
        (None, ISSUER, "iss is missing, and the provider promises it"),
    ],
)
def test_the_log_says_why_the_issuer_did_not_fit(said: str | None, configured: str, note: str) -> None:
    with pytest.raises(BrokerError) as refused:
        check_response(replace(CODE, issuer=said), configured, promised=True)
    assert note == refused.value.note


@pytest.mark.parametrize("promised", [False, True])
def test_an_error_needs_no_issuer_but_a_wrong_one_is_told(promised: bool) -> None:
    assert Code.PROVIDER_DENIED is checked(DENIED, issuer_promised=promised)
    assert Code.ISSUER_MISMATCH is checked(replace(DENIED, issuer="https://evil.example"), issuer_promised=promised)


def test_the_parsed_error_itself_is_raised_so_that_it_is_logged_as_such() -> None:
    error = BrokerError(Code.APP_MISCONFIGURED)
    with pytest.raises(BrokerError) as caught:
        check_response(replace(CODE, code=None, refused=error), ISSUER, promised=False)
    assert error is caught.value


def test_a_response_with_neither_code_nor_error_is_a_denial() -> None:
    assert Code.PROVIDER_DENIED is checked(replace(CODE, code=None))


# A code that was pending


@pytest.mark.parametrize(
    ("changes", "late", "expected"),
    [
        ({}, 0, "kept"),
        ({}, PENDING_CODE_SECONDS - 1, "kept"),
        ({}, PENDING_CODE_SECONDS, Code.STATE_UNKNOWN),
        ({"status": "failed"}, 0, Code.STATE_UNKNOWN),
        ({"pending_code": None}, 0, Code.STATE_UNKNOWN),
    ],
)
def test_a_pending_code_is_released_while_its_session_waits(
    changes: dict[str, Any], late: int, expected: Code | str
) -> None:
    session = opened(**{"pending_code": PENDING, **changes})
    try:
        got: Code | str = confirmed_callback(session, NOW + timedelta(seconds=late)).code.reveal()
    except BrokerError as error:
        got = error.code
    assert expected == got
