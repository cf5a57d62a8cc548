"""A provider's own ways, one by one: each changes its own part and nothing else."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.answer_checks import date_of, lookup
from oauthbroker.protocol.authorization_request import authorization_params, new_attempt
from oauthbroker.protocol.messages import ProviderRequest, encode_form, encode_json, reveal
from oauthbroker.protocol.par import par_request, pushed_url
from oauthbroker.protocol.refresh_messages import RefreshRefused, refresh_request, refresh_response
from oauthbroker.protocol.token_endpoint import TokenResponse, code_request, token_response
from oauthbroker.protocol.userinfo import userinfo_request, userinfo_response
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, CLIENT_ID, answer, assert_clean, code_of, with_habits

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
GOOD: dict[str, Any] = {"access_token": f"{CANARY}-at", "token_type": "Bearer"}
REFRESH = Secret(f"{CANARY}-rt")


def exchange(**habits: Any) -> ProviderRequest:
    app = with_habits(**habits)
    return code_request(app, app.endpoints, Secret("the-code"), Secret("the-verifier"), clock=TestClock())


def refresh_state(scopes: tuple[str, ...] = ("read", "write"), **habits: Any) -> ProviderRequest:
    app = with_habits(**habits)
    return refresh_request(app, app.endpoints, REFRESH, clock=TestClock(), scopes=scopes)


def sent(request: ProviderRequest) -> dict[str, Any]:
    assert request.form is not None
    if request.encoding == "json":
        return dict(json.loads(encode_json(request.form)))
    return {name: values[0] for name, values in parse_qs(encode_form(request.form).decode()).items()}


def validated(members: Any, date: datetime | None = None, **habits: Any) -> TokenResponse:
    raw = answer(members)
    return token_response(with_habits(**habits), dataclasses.replace(raw, date=date))


# --- requests to the token endpoint


def test_a_json_body_says_the_same_as_a_form():
    form, body = exchange(), exchange(token_request_format="json")
    assert ("form", "json") == (form.encoding, body.encoding)
    assert sent(form) == sent(body)
    assert {"grant_type": "authorization_code", "code": "the-code"}.items() <= sent(body).items()


def test_a_post_client_stands_in_the_json_body_too():
    app = dataclasses.replace(
        with_habits(token_request_format="json"),
        client=dataclasses.replace(APP.client, auth_method="client_secret_post"),
    )
    members = sent(code_request(app, app.endpoints, Secret("c"), Secret("v"), clock=TestClock()))
    assert (CLIENT_ID, f"{CANARY}-client-secret") == (members["client_id"], members["client_secret"])


@pytest.mark.parametrize("build", [exchange, refresh_state])
def test_headers_of_the_providers_own_are_added_and_ours_stay_ours(build: Any):
    request = build(
        token_headers={"Notion-Version": "1", "X-Client": "id {client_id}", "Accept": "application/vnd.a+json",
                       "authorization": "evil", "Content-Type": "evil", "HOST": "evil"}
    )  # fmt: skip
    assert ("1", f"id {CLIENT_ID}") == (request.headers["Notion-Version"], request.headers["X-Client"])
    assert "application/vnd.a+json" == request.accept
    assert {"Authorization", "Notion-Version", "X-Client"} == set(request.headers)
    assert reveal(request.headers["Authorization"]).startswith("Basic ")


def test_extra_parameters_go_where_they_were_meant_and_never_over_ours():
    habits: dict[str, Any] = {
        "token_params": {"a": "1", "code": "evil"},
        "refresh_params": {"b": "2", "refresh_token": "evil", "scope": "evil"},
    }
    first, again = sent(exchange(**habits)), sent(refresh_state(**habits))
    assert ("1", "the-code", False) == (first["a"], first["code"], "b" in first)
    assert ("2", REFRESH.reveal(), False, False) == (again["b"], again["refresh_token"], "a" in again, "scope" in again)


@pytest.mark.parametrize(
    "habits, scopes, said",
    [
        ({}, ("read",), None),
        ({"refresh_scope": "send"}, ("read", "write"), "read write"),
        ({"refresh_scope": "send", "scope_separator": ","}, ("read", "write"), "read,write"),
        ({"refresh_scope": "send", "always_scopes": ("offline_access",)}, ("read",), "offline_access read"),
        ({"refresh_scope": "send"}, (), None),
    ],
)
def test_a_refresh_names_scopes_only_where_the_provider_wants_to_hear_them(habits: Any, scopes: Any, said: str | None):
    assert said == sent(refresh_state(scopes, **habits)).get("scope")


def test_a_refresh_goes_to_its_own_endpoint_where_there_is_one():
    ends = dataclasses.replace(APP.endpoints, refresh_url="https://id.example/refresh")
    assert APP.endpoints.token_url == refresh_state().url
    assert "https://id.example/refresh" == refresh_request(APP, ends, REFRESH, clock=TestClock()).url


# --- the names of parameters, and the place where they stand

TIKTOK = {"client_id": "client_key", "client_secret": "app_secret", "code": "auth_code", "redirect_uri": "callback",
          "refresh_token": "exchange_again"}  # fmt: skip


def posting(**habits: Any) -> App:
    """An app whose client shows its secret among the parameters."""
    return dataclasses.replace(
        with_habits(**habits), client=dataclasses.replace(APP.client, auth_method="client_secret_post")
    )


def renamed(members: dict[str, Any]) -> dict[str, Any]:
    return {TIKTOK.get(name, name): value for name, value in members.items()}


@pytest.mark.parametrize("form", ["form", "json", "query"])
def test_parameters_may_have_names_of_the_providers_own_and_mean_the_same(form: Any):
    plain, own = posting(token_request_format=form), posting(token_request_format=form, param_names=TIKTOK)
    for standard, request in zip(both_requests(plain), both_requests(own), strict=True):
        assert renamed(sent(standard)) == sent(request)
        assert not TIKTOK.keys() & sent(request).keys()
        assert CANARY not in f"{request!r} {request.url} {request.form!r}"


def both_requests(app: App) -> list[ProviderRequest]:
    clock, ends = TestClock(), app.endpoints
    exchanged = code_request(app, ends, Secret("c"), Secret("v"), clock=clock)
    return [exchanged, refresh_request(app, ends, REFRESH, clock=clock)]


def test_the_authorization_request_has_the_providers_names_too():
    attempt = new_attempt(TestClock(), "L" * 22, cookie=None)
    plain = authorization_params(with_habits(), attempt, ["read"])
    own = authorization_params(
        with_habits(param_names=TIKTOK, authorize_params={"client_key": "evil", "a": "1"}), attempt, ["read"]
    )
    assert renamed(plain) | {"a": "1"} == own


def test_a_pushed_request_has_them_and_so_has_the_address_that_refers_to_it():
    attempt = new_attempt(TestClock(), "L" * 22, cookie=None)
    ends = dataclasses.replace(APP.endpoints, pushed_authorization_url="https://id.example/par")
    plain, own = (
        par_request(app, ends, attempt, ["read"], clock=TestClock()) for app in (posting(), posting(param_names=TIKTOK))
    )
    assert renamed(sent(plain)) == sent(own)
    url = pushed_url(posting(param_names=TIKTOK), ends, Secret("urn:a:1"))
    assert {"client_key": [CLIENT_ID], "request_uri": ["urn:a:1"]} == parse_qs(urlsplit(url).query)


def test_no_parameter_of_an_app_replaces_one_of_ours_under_its_other_name():
    request = code_request(
        posting(param_names=TIKTOK, token_params={"client_key": "evil", "auth_code": "evil", "client_id": "evil"}),
        APP.endpoints, Secret("c"), Secret("v"), clock=TestClock(),
    )  # fmt: skip
    assert "evil" not in sent(request).values()


def test_what_stands_in_the_address_is_no_part_of_a_requests_url():
    request = exchange(token_request_format="query")
    assert ("GET", APP.endpoints.token_url, "query") == (request.method, request.url, request.encoding)
    assert sent(exchange()) == sent(request)


def test_a_registered_name_stands_in_place_of_the_redirect_uri():
    app = dataclasses.replace(APP, redirect=dataclasses.replace(APP.redirect, uri_name="Acme-App-PRD-1"))
    attempt = new_attempt(TestClock(), "L" * 22, cookie=None)
    assert "Acme-App-PRD-1" == authorization_params(app, attempt, [])["redirect_uri"]
    request = code_request(app, app.endpoints, Secret("c"), Secret("v"), clock=TestClock())
    assert "Acme-App-PRD-1" == sent(request)["redirect_uri"]
    assert APP.redirect.uri == app.redirect.uri
    assert app.config_digest != APP.config_digest


# --- answers of the token endpoint


def test_an_answer_may_be_a_list_of_one():
    tokens = validated([{**GOOD, "scope": "read"}], token_response_format="list")
    assert (GOOD["access_token"], ("read",)) == (tokens.access_token.reveal(), tokens.scopes)
    nested = validated({"data": [GOOD]}, token_path=("data", "0"))
    assert GOOD["access_token"] == nested.access_token.reveal()


@pytest.mark.parametrize("habits", [{"token_response_format": "list"}, {"token_path": ("data", "0")}])
@pytest.mark.parametrize("members", [[], [GOOD, GOOD], [[GOOD]], ["a"], [None]])
def test_a_list_of_several_is_no_answer(habits: Any, members: Any):
    body = {"data": members} if "token_path" in habits else members
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated(body, **habits))


def test_a_list_is_no_answer_where_the_profile_has_none():
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated([GOOD]))
    assert Code.TOKEN_RESPONSE_INVALID == code_of(
        lambda: validated({"0": GOOD, "data": GOOD}, token_path=("data", "0"))
    )


def test_a_refusal_may_stand_in_a_list_or_beside_one():
    assert Code.EXCHANGE_FAILED == code_of(
        lambda: validated([{"error": "invalid_grant"}], token_response_format="list")
    )
    assert Code.EXCHANGE_FAILED == code_of(lambda: validated({"error": "invalid_grant"}, token_response_format="list"))


def test_a_refresh_token_in_a_refused_list_is_saved():
    app = with_habits(token_response_format="list")
    with pytest.raises(RefreshRefused) as refused:
        refresh_response(app, answer([{**GOOD, "token_type": "DPoP", "refresh_token": "next"}]))
    assert refused.value.spare == Secret("next")


@pytest.mark.parametrize(
    "ok, members, accepted",
    [
        ({"code": 0}, {"code": 0}, True),
        ({"code": 0}, {}, True),
        ({"code": "0"}, {"code": "0"}, True),
        ({"code": "0"}, {"code": 0}, False),
        ({"code": 0}, {"code": False}, False),
        ({"code": 0}, {"code": 10003}, False),
        ({"code": 200}, {"code": 200}, True),
        ({"success": True}, {"success": True}, True),
        ({"success": True}, {"success": 1}, False),
        ({"success": True}, {"success": False}, False),
        ({"meta.status": "success"}, {"meta": {"status": "success"}}, True),
        ({"meta.status": "success"}, {"meta": {"status": "failed"}}, False),
        ({"code": 0, "success": True}, {"code": 0, "success": False}, False),
        ({"error": False}, {"error": False}, True),
        ({"error": False}, {"error": True}, False),
        ({"error.code": "ok"}, {"error": {"code": "ok"}}, True),
        ({"error.code": "ok"}, {"error": {"code": "scope_not_authorized"}}, False),
        ({"ok": "yes"}, {"ok": "yes"}, True),
        ({"ok": "yes"}, {"ok": "no"}, False),
        ({"code": 0}, {"code": 0, "error": False}, False),
        ({"code": 0}, {"code": 0, "ok": "yes"}, False),
    ],
)
def test_an_envelope_says_whether_it_is_a_success(ok: Any, members: Any, accepted: bool):
    habits: Any = {"token_path": ("data",), "ok_members": ok}
    if accepted:
        assert GOOD["access_token"] == validated({**members, "data": GOOD}, **habits).access_token.reveal()
    else:
        refused = code_of(lambda: validated({**members, "data": GOOD}, **habits))
        assert refused in {Code.EXCHANGE_FAILED, Code.TOKEN_RESPONSE_INVALID}


@pytest.mark.parametrize(
    "body, accepted",
    [
        ({"id": 1}, True),
        ({"id": 1, "error": {"code": "ok"}}, True),
        ({"id": 1, "error": {"code": "access_token_invalid"}}, False),
        ({"id": 1, "error": {"code": "ok"}, "ok": False}, False),
    ],
)
def test_userinfo_says_in_the_same_members_whether_it_is_a_success(body: Any, accepted: bool):
    ok = {"error.code": "ok"}
    if accepted:
        assert body == userinfo_response(answer(body), ok=ok)
    else:
        assert Code.SUBJECT_UNVERIFIABLE == code_of(lambda: userinfo_response(answer(body), ok=ok))


def test_the_word_of_an_envelope_is_read_from_its_number():
    habits: Any = {"ok_members": {"code": 0}, "error_words": {"10003": "invalid_grant"}}
    app = with_habits(token_path=("data",), **habits)
    with pytest.raises(RefreshRefused) as refused:
        refresh_response(app, answer({"code": 10003, "data": {}}))
    assert Code.REAUTH_REQUIRED is refused.value.code


def test_members_may_have_names_of_their_own():
    names = {"access_token": "key", "refresh_token": "renew", "token_type": "kind", "scope": "rights"}
    tokens = validated(
        {
            "key": "a",
            "renew": "r",
            "kind": "bearer",
            "rights": "read write",
            "access_token": "not this one",
            "scope": "x",
        },
        token_names=names,
    )
    assert ("a", "r", ("read", "write")) == (
        tokens.access_token.reveal(),
        tokens.refresh_token and tokens.refresh_token.reveal(),
        tokens.scopes,
    )


def test_a_token_under_a_name_of_its_own_is_no_fact():
    reported = validated(
        {"key": f"{CANARY}-at", "inner": {"key": CANARY, "id": 1}, "token_type": "bearer"},
        token_names={"access_token": "key"},
    )
    assert {"inner": {"id": 1}, "token_type": "bearer"} == reported.facts


def test_a_missing_member_is_missing_under_any_name():
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated(GOOD, token_names={"access_token": "key"}))


def test_an_answer_without_a_type_is_taken_only_where_that_is_known():
    bare = {"access_token": "a"}
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated(bare))
    assert "bearer" == validated(bare, token_type_optional=True).token_type
    mac = {**bare, "token_type": "mac"}
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: validated(mac, token_type_optional=True))


def epoch(seconds: float) -> float:
    return (NOW + timedelta(seconds=seconds)).timestamp()


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "form, value, seconds",
    [
        ("seconds", 3600, 3600),
        ("milliseconds", 3_600_000, 3600),
        ("milliseconds", "3600999", 3600),
        ("epochSeconds", epoch(3600), 3600),
        ("epochSeconds", str(int(epoch(3600))), 3600),
        ("epochMilliseconds", int(epoch(90) * 1000), 90),
        ("epochSeconds", epoch(-5), 0),
        ("epochSeconds", 10**18, 31_536_000),
        ("epochSeconds", 0, 0),
        ("iso", "2026-11-21T09:00:00Z", 3600),
        ("iso", "2026-11-21T10:00:00+01:00", 3600),
        ("iso", "2020-01-01T00:00:00Z", 0),
        ("minutes", 60, 3600),
        ("minutes", "1440", 86_400),
        ("hours", 2, 7200),
        ("hours", 10**9, 31_536_000),
        ("hours", -1, 0),
        ("date", "2026-11-21T09:00:00Z", 3600),
        ("date", "2026-11-21T09:00:00", 3600),
        ("date", "2026-11-21T10:00:00.000+01:00", 3600),
        ("date", "2026-11-21 09:00:00", 3600),
        ("date", "Sat, 21 Nov 2026 09:00:00 GMT", 3600),
        ("date", "Sat, 21 Nov 2026 09:00:00 -0000", 3600),
        ("date", "Sat, 21 Nov 2026 10:00:00 +0100", 3600),
        ("date", "1994-11-06 08:49:37", 0),
    ],
)
def test_a_lifetime_is_read_in_the_form_the_provider_gives_it(form: str, value: Any, seconds: int):
    reported = validated({**GOOD, "ends": value, "expires_in": 7}, NOW, lifetime_field="ends", lifetime_form=form)
    assert seconds == reported.lifetime_seconds


def test_a_figure_that_means_nothing_is_not_taken_for_a_token_that_has_ended():
    for value in (0, "never", None, 3600):
        assert None is validated({**GOOD, "expires_in": value}, NOW, lifetime_form="none").lifetime_seconds
    reported = validated({**GOOD, "expires_in": 0}, NOW, lifetime_form="none", default_lifetime_seconds=60)
    assert 60 == reported.lifetime_seconds


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "form, value, date",
    [
        ("epochSeconds", 1, None),
        ("iso", "2026-11-21T09:00:00Z", None),
        ("iso", "2026-11-21T09:00:00", NOW),
        ("iso", "tomorrow", NOW),
        ("iso", "Sat, 21 Nov 2026 09:00:00 GMT", NOW),
        ("date", "2026-11-21 09:00:00", None),
        ("date", "2026-11-21", NOW),
        ("date", "12:00:00", NOW),
        ("date", "21/11/2026 09:00:00", NOW),
        ("date", 1_795_000_000, NOW),
        ("minutes", "an hour", NOW),
        ("iso", 1_795_000_000, NOW),
        ("epochSeconds", "2026-11-21T09:00:00Z", NOW),
        ("epochMilliseconds", True, NOW),
        ("milliseconds", "1e3", NOW),
        ("seconds", [1], NOW),
    ],
)
def test_a_lifetime_that_cannot_be_counted_is_as_if_it_were_absent_and_marked(form: str, value: Any, date: Any):
    for usual in (None, 1800):
        habits = {"lifetime_form": form, "default_lifetime_seconds": usual}
        reported = validated({**GOOD, "expires_in": value}, date, **habits)
        assert (usual, False) == (reported.lifetime_seconds, reported.end_stated)
        assert ("lifetime",) == reported.unusual


def test_an_answer_may_separate_scopes_otherwise_than_a_request():
    reported = validated({**GOOD, "scope": "repo,gist"}, scope_separator=" ", answer_scope_separator=",")
    assert ("repo", "gist") == reported.scopes
    assert ("repo", "gist") == validated({**GOOD, "scope": "repo gist"}, scope_separator=" ").scopes


@pytest.mark.parametrize("value", [40029, "no", True, -1, {"code": 1}, ["x"]])
def test_a_member_of_the_providers_own_says_no_in_a_200(value: Any):
    assert validated({**GOOD, "errcode": value}).access_token
    assert code_of(lambda: validated({**GOOD, "errcode": value}, error_members=("errcode",))) in {
        Code.EXCHANGE_FAILED, Code.TOKEN_RESPONSE_INVALID
    }  # fmt: skip


@pytest.mark.parametrize("value", [0, "", None, False, [], {}])
def test_a_member_that_says_nothing_says_yes(value: Any):
    assert validated({**GOOD, "errcode": value, "deep": {"code": value}}, error_members=("errcode", "deep.code"))


@pytest.mark.parametrize(
    "body, code",
    [
        ({"ok": False, "error": "gone"}, Code.EXCHANGE_FAILED),
        ({"ok": False, "error": "who"}, Code.APP_MISCONFIGURED),
        ({"ok": False, "error": "later"}, Code.PROVIDER_UNREACHABLE),
        ({"error": {"name": "who"}}, Code.APP_MISCONFIGURED),
        ({"errcode": 40029}, Code.APP_MISCONFIGURED),
        ({"errcode": 0, "error": "who"}, Code.APP_MISCONFIGURED),
        ({"error": "never heard"}, Code.EXCHANGE_FAILED),
    ],
)
@pytest.mark.parametrize("status", [200, 400])
def test_a_providers_words_are_read_as_the_rfcs(body: Any, code: Code, status: int):
    words = {
        "gone": "invalid_grant",
        "who": "invalid_client",
        "later": "temporarily_unavailable",
        "40029": "invalid_client",
    }
    app = with_habits(error_words=words, error_members=("errcode", "error.name"))
    assert code == code_of(lambda: token_response(app, answer(body, status)))


def test_a_dead_refresh_token_is_reported_in_the_providers_own_word():
    app = with_habits(error_words={"stale": "invalid_grant"})
    with pytest.raises(RefreshRefused) as caught:
        refresh_response(app, answer({"error": "stale"}))
    assert Code.REAUTH_REQUIRED == caught.value.code
    assert_clean(caught.value)


def test_the_answer_to_a_refresh_may_have_another_shape():
    app = with_habits(token_path=("user",), refresh_token_path=())
    nested, flat = {"user": GOOD, "id": 1}, GOOD
    assert token_response(app, answer(nested)).access_token
    assert refresh_response(app, answer(flat)).access_token
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: token_response(app, answer(flat)))
    assert Code.TOKEN_RESPONSE_INVALID == code_of(lambda: refresh_response(app, answer(nested)))
    with pytest.raises(RefreshRefused) as refused:
        refresh_response(app, answer({**flat, "token_type": "mac", "refresh_token": "next"}))
    assert refused.value.spare is not None
    assert "next" == refused.value.spare.reveal()


# --- who am I


def asked(**habits: Any) -> ProviderRequest:
    app: App = with_habits(**habits)
    return userinfo_request(app, app.endpoints, Secret(f"{CANARY}-at"))


def test_a_question_may_be_a_post_with_a_json_body():
    request = asked(user_info_method="POST", user_info_body={"query": "{ viewer { id } }"})
    assert ("POST", {"query": "{ viewer { id } }"}, "json") == (request.method, request.form, request.encoding)
    assert ("POST", None) == (asked(user_info_method="POST").method, asked(user_info_method="POST").form)


@pytest.mark.parametrize(
    "habits, headers",
    [
        ({}, {"Authorization": f"Bearer {CANARY}-at"}),
        ({"user_info_token_scheme": "OAuth"}, {"Authorization": f"OAuth {CANARY}-at"}),
        ({"token_scheme": "Zoho-oauthtoken"}, {"Authorization": f"Zoho-oauthtoken {CANARY}-at"}),
        ({"token_scheme": ""}, {"Authorization": f"{CANARY}-at"}),
        ({"token_scheme": "Token", "user_info_token_scheme": "Bearer"}, {"Authorization": f"Bearer {CANARY}-at"}),
        ({"token_header": "X-Access-Token"}, {"X-Access-Token": f"{CANARY}-at"}),
        ({"token_header": "X-Auth", "token_scheme": "Token"}, {"X-Auth": f"Token {CANARY}-at"}),
        (
            {
                "token_header": "X-Access-Token",
                "user_info_headers": {"x-access-token": "evil", "Client-Id": "{client_id}"},
            },
            {"X-Access-Token": f"{CANARY}-at", "Client-Id": CLIENT_ID},
        ),
    ],
)
def test_the_token_travels_in_the_header_the_provider_reads(habits: Any, headers: dict[str, str]):
    request = asked(**habits)
    assert headers == {name: reveal(value) for name, value in request.headers.items()}
    assert CANARY not in f"{request!r} {request.url} {request.headers!r}"


# --- paths and dates


@pytest.mark.parametrize(
    "path, found",
    [
        ("a.b", 1), ("list.0.id", "x"), ("list.1", "y"), ("list.2", None), ("list.00", None), ("list.-1", None), ("list.x", None), ("a.b.c", None),
        ("", None), ("list", [{"id": "x"}, "y"]), ("0", "zero"), ("list.99999999", None), ("list.\u0661", None),
    ],
)  # fmt: skip
def test_a_path_looks_into_objects_and_lists(path: str, found: Any):
    assert found == lookup({"a": {"b": 1}, "list": [{"id": "x"}, "y"], "0": "zero"}, path)
    assert "x" == lookup([{"id": "x"}], "0.id")


@pytest.mark.parametrize(
    "header, date",
    [
        ("Sat, 21 Nov 2026 08:00:00 GMT", NOW),
        ("Sat, 21 Nov 2026 08:00:00 -0000", None),  # RFC 5322: an unknown zone
        ("", None),
        ("yesterday", None),
        ("99999999999999999999", None),
    ],
)
def test_a_date_header_is_a_moment_or_nothing(header: str, date: datetime | None):
    assert date == date_of(header)


@pytest.mark.parametrize(
    "members, expected",
    [
        ({"user": {**GOOD, "id_token": "inner"}}, "inner"),
        ({"user": GOOD, "id_token": "outer"}, "outer"),
        ({"user": {**GOOD, "id_token": "inner"}, "id_token": "outer"}, "inner"),
        ({"user": GOOD}, None),
    ],
)
def test_an_id_token_may_stand_beside_the_object_with_the_tokens_and_the_one_in_it_counts_first(members, expected):
    found = token_response(with_habits(token_path=("user",)), answer(members)).id_token
    assert expected == (found.reveal() if found is not None else None)


@pytest.mark.parametrize("status, ambiguity", [(404, "any"), (408, ""), (425, ""), (410, "any"), (451, "any")])
def test_a_page_in_front_of_the_provider_may_mean_anything_unless_its_status_says_nothing_of_the_request(
    status, ambiguity
):
    with pytest.raises(RefreshRefused) as caught:
        refresh_response(APP, answer(b"<html>", status, "text/html"))
    assert (Code.PROVIDER_UNREACHABLE, True, ambiguity) == (
        caught.value.code, caught.value.spent, caught.value.ambiguity,
    )  # fmt: skip


@pytest.mark.parametrize("repeated", ["access_token=&", "access_token=b&", "junk&"])
def test_a_form_with_a_member_twice_or_without_a_value_is_refused_also_where_one_is_empty(repeated):
    app, label = with_habits(token_response_format="form"), "application/x-www-form-urlencoded"
    body = f"{repeated}access_token=a&token_type=bearer".encode()
    assert Code.TOKEN_RESPONSE_INVALID is code_of(lambda: token_response(app, answer(body, label=label)))
