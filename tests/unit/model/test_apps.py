"""OAuthApp and its parts as the reservations use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, Owner, Redirect
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.testing import Canaries
from tests.kit.samples import app_with

APP = app_with()


@pytest.mark.parametrize(
    "base", ["https://b.example", "https://b.example/", "https://b.example/oauth", "https://b.example/oauth/"]
)
def test_a_callback_lies_under_its_base_url(base: str) -> None:
    assert base.rstrip("/") + "/oauth/callback/mail" == Redirect("/oauth/callback/mail", base).uri


def test_people_see_the_title_and_without_one_the_provider() -> None:
    assert ("Mail", "acme") == (app_with(title="Mail").display_name, APP.display_name)


def test_the_ceiling_follows_the_scopes() -> None:
    assert frozenset({"read", "write"}) == APP.scope_set
    assert frozenset({"x"}) == replace(APP, scopes=("x",)).scope_set


CHANGES: dict[str, dict[str, Any]] = {
    "provider": {"provider": "other"},
    "mode": {"subject_mode": "global"},
    "client id": {"client": Client("other", Secret("a-client-secret"))},
    "auth method": {"client": Client("an-id", Secret("a-client-secret"), "client_secret_post")},
    "token endpoint": {"endpoints": replace(APP.endpoints, token_url="https://evil.example/token")},
    "authorization endpoint": {"endpoints": replace(APP.endpoints, authorization_url="https://evil.example/")},
    "issuer": {"endpoints": replace(APP.endpoints, issuer="https://evil.example")},
    "callback": {"redirect": Redirect("/other", "https://broker.example")},
    "link": {"redirect": replace(APP.redirect, link="direct")},
    "binding": {"owner": Owner(binding="localOperator")},
    "resource": {"resource": ("https://api.example",)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_authorization_notices_that_its_app_changed(change: str) -> None:
    assert APP.config_digest != replace(APP, **CHANGES[change]).config_digest


@pytest.mark.parametrize(
    "change",
    [{"title": "New"}, {"client": Client("an-id", Secret("rotated"))}, {"revocation": Revocation("none", "none")}],
    ids=["title", "secret", "revocation"],
)
def test_what_a_running_authorization_does_not_rely_on_does_not_end_it(change: dict[str, Any]) -> None:
    assert APP.config_digest == replace(APP, **change).config_digest


def test_two_apps_with_nothing_in_common_share_no_digest() -> None:
    """Every field is a member of a list of its own, so that none can lean over into the next."""
    one = replace(APP, endpoints=Endpoints(authorization_url="a", token_url="b"))
    other = replace(APP, endpoints=Endpoints(authorization_url="ab", token_url=""))
    assert one.config_digest != other.config_digest


@pytest.mark.case("92")
def test_an_app_prints_without_its_clients_secret(canaries: Canaries) -> None:
    app = replace(APP, client=Client("an-id", canaries.mint("client secret")))
    canaries.look(repr(app), "the repr of an app")
    assert "Secret(***)" in repr(app)


def test_the_defaults_are_the_standards() -> None:
    habits = Habits()
    assert (" ", "scope", "json", "reject") == (
        habits.scope_separator,
        habits.scope_param,
        habits.token_response_format,
        habits.extra_scopes,
    )
    assert {"RS256", "ES256", "PS256", "EdDSA"} == set(habits.id_token_algorithms)  # none that a client's secret makes
    assert ("rfc7009", "grant") == (Revocation().kind, Revocation().reach)


def test_a_reference_is_the_specifications() -> None:
    app: App = APP
    assert {"kind": "OAuthApp", "name": "mail"} == app.ref
