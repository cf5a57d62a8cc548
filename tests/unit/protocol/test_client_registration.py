"""The client that we ask for, and its document."""

from __future__ import annotations

import dataclasses

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints, Redirect
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.protocol.client_auth import authenticated_post
from oauthbroker.protocol.client_registration import (
    client_document,
    client_document_url,
    registration_request,
    registration_response,
    takes_document,
)
from oauthbroker.protocol.metadata import ProviderMetadata
from oauthbroker.testing import TestClock
from tests.unit.protocol.kit import APP, CANARY, answer, code_of, with_habits

MCP = dataclasses.replace(APP, mcp=McpServer("https://mcp.example/x"))


def metadata(methods: tuple[str, ...] | None, *, documents: bool = False) -> ProviderMetadata:
    return ProviderMetadata(
        endpoints=Endpoints(),
        issuer_promised=False,
        push_required=False,
        s256=True,
        registration_url="https://id.example/r",
        client_documents=documents,
        auth_methods=methods,
    )


ASKED = registration_request(MCP, metadata(None))


@pytest.mark.parametrize(
    "methods, chosen",
    [
        (None, "client_secret_basic"),
        (("none", "client_secret_post"), "client_secret_post"),
        (("private_key_jwt", "none"), "none"),
        (("client_secret_basic", "client_secret_post"), "client_secret_post"),
    ],
)
def test_a_client_with_a_secret_is_asked_for_where_the_server_has_one(
    methods: tuple[str, ...] | None, chosen: str
) -> None:
    form = registration_request(MCP, metadata(methods)).form
    assert form is not None
    assert chosen == form["token_endpoint_auth_method"]


@pytest.mark.parametrize("base, kind", [("https://broker.example", "web"), ("http://127.0.0.1:8420", "native")])
def test_the_callback_makes_the_type_of_the_application(base: str, kind: str) -> None:
    app: App = dataclasses.replace(MCP, redirect=Redirect("/oauth/callback/shop", base))
    form = registration_request(app, metadata(None)).form
    assert form is not None
    assert (kind, (f"{base}/oauth/callback/shop",)) == (form["application_type"], form["redirect_uris"])


def test_the_client_may_ask_for_the_scopes_of_the_app_and_those_that_are_always_sent() -> None:
    assert "openid read write" == client_document(with_habits(always_scopes=("openid",)), "x")["scope"]
    assert "scope" not in client_document(dataclasses.replace(MCP, scopes=()), "x")


def test_a_document_needs_an_https_address_and_a_server_that_takes_public_clients() -> None:
    assert "https://b.example/clients/shop.json" == client_document_url("https://b.example", "shop")
    assert "" == client_document_url("http://127.0.0.1:8420", "shop")
    taken = [takes_document(metadata(methods, documents=True)) for methods in (None, ("none",), ("private_key_jwt",))]
    assert [True, True, False] == taken
    assert not takes_document(metadata(None))
    signs = [
        takes_document(metadata(each, documents=True), "private_key_jwt")
        for each in (None, ("none",), ("private_key_jwt",))
    ]
    assert [False, False, True] == signs


def test_the_answer_decides_how_the_client_proves_itself() -> None:
    made = {"client_id": "c", "client_secret": f"{CANARY}-s", "client_secret_expires_at": 1_800_000_000}
    client, ends_at = registration_response(MCP, ASKED, answer(made, 201))
    assert ("c", "client_secret_basic", 2027) == (client.client_id, client.auth_method, ends_at and ends_at.year)
    post = {**made, "token_endpoint_auth_method": "client_secret_post"}
    assert "client_secret_post" == registration_response(MCP, ASKED, answer(post, 201))[0].auth_method
    public, ends_at = registration_response(MCP, ASKED, answer({"client_id": "c"}, 200))
    assert ("none", None, None) == (public.auth_method, public.client_secret, ends_at)


@pytest.mark.case("124")
@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"error": "invalid_redirect_uri", "error_description": CANARY}, 400, Code.MCP_REGISTRATION_NEEDED),
        ({"error": CANARY}, 403, Code.MCP_REGISTRATION_NEEDED),
        (CANARY.encode(), 404, Code.MCP_REGISTRATION_NEEDED),
        ({}, 429, Code.PROVIDER_RATE_LIMITED),
        ({}, 503, Code.PROVIDER_UNREACHABLE),
        ([CANARY], 201, Code.MCP_REGISTRATION_NEEDED),
        ({"client_id": "c", "client_secret": CANARY, "client_secret_expires_at": 10**30}, 201, Code.MCP_REGISTRATION_NEEDED),
        ({"client_id": "c" * 5000}, 201, Code.MCP_REGISTRATION_NEEDED),
        ({"client_id": "c", "redirect_uris": "https://broker.example"}, 201, Code.MCP_REGISTRATION_NEEDED),
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_usable_client_is_refused_without_its_words(
    body: object, status: int, code: Code
) -> None:
    assert code == code_of(lambda: registration_response(MCP, ASKED, answer(body, status)))


def test_the_id_stands_in_the_form_of_an_mcp_app_too() -> None:
    """The authorization server of MCP's SDK looks for it there."""
    clock, url = TestClock(), "https://id.example/token"
    forms = [authenticated_post(app, app.endpoints, url, {"code": Secret("x")}, clock).form for app in (APP, MCP)]
    assert [False, True] == ["client_id" in (form or {}) for form in forms]
