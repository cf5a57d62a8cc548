from __future__ import annotations

import dataclasses
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.authorization_request import RESERVED, authorization_url, code_challenge
from oauthbroker.records import Attempt
from tests.unit.protocol.kit import APP, CLIENT_ID, code_of, with_endpoints, with_habits


def url_for(app: App = APP, *, scopes: tuple[str, ...] = ("read",), nonce: Secret | None = None) -> str:
    return authorization_url(
        app,
        app.endpoints,
        Attempt(state=Secret("state-1"), challenge="challenge-1", verifier=None, nonce=nonce),
        scopes,
    )


def asked(app: App = APP, *, scopes: tuple[str, ...] = ("read",), nonce: Secret | None = None) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(url_for(app, scopes=scopes, nonce=nonce)).query, keep_blank_values=True)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def test_the_challenge_is_the_one_of_the_rfc():
    """RFC 7636 appendix B."""
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" == code_challenge(verifier)


@pytest.mark.case("18")
def test_every_request_carries_code_state_and_an_s256_challenge():
    assert {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": "https://broker.example/base/oauth/callback/shop",
        "scope": "read write",
        "state": "state-1",
        "code_challenge": "challenge-1",
        "code_challenge_method": "S256",
    } == asked(scopes=("read", "write"))


@pytest.mark.parametrize(
    "habits, scopes, name, value",
    [
        (Habits(), ("a", "b"), "scope", "a b"),
        (Habits(scope_separator=","), ("a", "b"), "scope", "a,b"),
        (Habits(scope_param="user_scope"), ("a",), "user_scope", "a"),
        (Habits(always_scopes=("openid", "a")), ("a", "b"), "scope", "openid a b"),
        (Habits(always_scopes=("offline_access", "openid")), ("a",), "scope", "openid offline_access a"),
        (Habits(), ("email", "openid", "a"), "scope", "openid email a"),
        (Habits(), (), "scope", None),
        (Habits(always_scopes=("openid",)), (), "scope", "openid"),
    ],
)
def test_scopes_are_spelled_the_providers_way(habits, scopes, name, value):
    assert value == asked(dataclasses.replace(APP, habits=habits), scopes=scopes).get(name)


@pytest.mark.parametrize("nonce", [Secret("n-1"), "n-1"])
@pytest.mark.parametrize(
    "scopes, always, sent", [(("openid",), (), "n-1"), (("read",), ("openid",), "n-1"), (("read",), (), None)]
)
def test_the_nonce_goes_along_exactly_when_openid_is_asked(nonce, scopes, always, sent):
    assert sent == asked(with_habits(always_scopes=always), scopes=scopes, nonce=nonce).get("nonce")


def test_no_nonce_is_made_up():
    assert "nonce" not in asked(scopes=("openid",))


def test_each_resource_is_named():
    app = dataclasses.replace(APP, resource=("https://a.example/", "https://b.example/"))
    pairs = parse_qsl(urlsplit(url_for(app)).query)
    assert ["https://a.example/", "https://b.example/"] == [value for name, value in pairs if name == "resource"]


def test_options_and_the_endpoints_own_query_are_kept():
    app = dataclasses.replace(
        with_endpoints(authorization_url="https://id.example/authorize?tenant=a%20b&empty="),
        habits=Habits(authorize_params={"access_type": "offline", "uri": "x", "login_hint": "a&b=c"}),
    )
    found = asked(app)
    assert ("a b", "", "offline", "x", "a&b=c", "code") == tuple(
        found[name] for name in ("tenant", "empty", "access_type", "uri", "login_hint", "response_type")
    )


@pytest.mark.case("95")
@pytest.mark.parametrize("name", sorted(RESERVED))
def test_options_never_name_the_brokers_own_parameters(name):
    """The loader refuses them; an app built in code is held to the same."""
    assert asked() == asked(with_habits(authorize_params={name: "evil"}))


def test_options_never_name_the_apps_own_scope_parameter():
    app = with_habits(scope_param="user_scope", authorize_params={"user_scope": "admin", "scope": "admin"})
    assert ("read", None) == (asked(app).get("user_scope"), asked(app).get("scope"))


@pytest.mark.parametrize("name", ["state", "redirect_uri", "client_id", "request_uri", "response_mode"])
def test_an_endpoint_whose_query_names_the_brokers_own_parameters_is_refused(name):
    app = with_endpoints(authorization_url=f"https://id.example/authorize?{name}=evil")
    assert Code.APP_MISCONFIGURED == code_of(lambda: url_for(app))


@pytest.mark.parametrize(
    ("value", "is_taken"), [("authorize", True), ("e30.e30.", False), ("", False), ("https://id.example/jar", False)]
)
def test_an_endpoint_may_have_a_request_that_is_one_word_and_no_request_object(value, is_taken):
    app = with_endpoints(authorization_url=f"https://id.example/authorize.php?request={value}")
    if is_taken:
        assert url_for(app).startswith("https://id.example/authorize.php?request=authorize&")
    else:
        assert Code.APP_MISCONFIGURED == code_of(lambda: url_for(app))


def test_an_app_without_an_authorization_endpoint_is_refused():
    assert Code.APP_MISCONFIGURED == code_of(lambda: url_for(with_endpoints(authorization_url="")))


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_no_option_changes_the_brokers_own_parameters(options):
    ours = {"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method"}
    found = asked(with_habits(authorize_params=options))
    assert {name: asked()[name] for name in ours} == {name: found[name] for name in ours}
