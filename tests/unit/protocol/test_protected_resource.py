"""What an MCP server says of itself: where it is asked, which issuer is used, with which scopes a session begins."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.protocol.protected_resource import ProtectedResource, ProtectedResources
from tests.unit.protocol.kit import APP, answer, code_of

OURS = ("read", "write", "offline_access")


@pytest.mark.case("115")
@pytest.mark.parametrize(
    ("challenged", "scopes", "listed", "first"),
    [
        (("read",), ("write",), None, ("read",)),
        ((), ("write", "read"), None, ("read", "write")),
        ((), None, None, ()),
        ((), (), None, ()),
        (("root", "read"), None, None, ("read",)),
        (("root",), ("read",), ("offline_access",), ()),
        (("read",), None, ("offline_access", "write"), ("read", "offline_access")),
        (("read", "offline_access"), None, ("read",), ("read",)),
        ((), None, ("read", "offline_access"), ()),
    ],
)
def test_a_session_begins_with_the_challenges_scopes_or_the_listed_ones_within_the_ceiling(
    challenged: tuple[str, ...], scopes: tuple[str, ...] | None, listed: tuple[str, ...] | None, first: tuple[str, ...]
) -> None:
    """`offline_access` follows what the authorization server lists. An empty answer leaves it to the ceiling."""
    server = ProtectedResource(resource="https://m.example", issuers=("i",), scopes=scopes, challenged=challenged)
    assert first == server.first_scopes(dataclasses.replace(APP, scopes=OURS), listed)


URL = "https://m.example/mcp"
WELL_KNOWN = [
    "https://m.example/.well-known/oauth-protected-resource/mcp",
    "https://m.example/.well-known/oauth-protected-resource",
]
NAMED = "https://m.example/meta"
DOCUMENT = {"resource": URL, "authorization_servers": ["https://id.example"], "scopes_supported": ["read"]}
SERVER = dataclasses.replace(APP, resource=(URL,), mcp=McpServer(URL))


@pytest.mark.parametrize(
    ("named", "before", "expected"),
    [
        ("", "", "one"),
        ("", "two", "two"),
        ("", "three", "one"),
        ("two", "", "two"),
        ("two", "one", "two"),
    ],
)
def test_the_operators_issuer_comes_before_the_one_of_before_and_that_before_the_servers_first(
    named: str, before: str, expected: str
) -> None:
    server = ProtectedResource(resource=URL, issuers=("one", "two"), scopes=None)
    assert expected == server.issuer_for(dataclasses.replace(APP, mcp=McpServer(URL, named)), before)


def test_an_issuer_that_the_server_does_not_name_is_the_operators_to_fix() -> None:
    server = ProtectedResource(resource=URL, issuers=("one", "two"), scopes=None)
    app = dataclasses.replace(APP, mcp=McpServer(URL, "three"))
    assert Code.APP_MISCONFIGURED is code_of(lambda: server.issuer_for(app, "one"))


def test_an_app_without_an_mcp_server_names_no_issuer() -> None:
    assert "one" == ProtectedResource(resource=URL, issuers=("one",), scopes=None).issuer_for(APP)


class Wire:
    """Answers by address: the server itself, and its documents."""

    def __init__(
        self, server: ProviderResponse | BrokerError, pages: dict[str, ProviderResponse | BrokerError]
    ) -> None:
        self.pages, self.asked = {URL: server, **pages}, list[tuple[str, str]]()
        self.proxy_resolves = False

    async def send(self, request: ProviderRequest, **_: Any) -> ProviderResponse:
        self.asked.append((request.method, request.url))
        said = self.pages.get(request.url, answer({}, 404))
        if isinstance(said, BrokerError):
            raise said
        return said

    async def look(self) -> ProtectedResource | Code:
        transport: Any = self
        try:
            return await ProtectedResources(transport=transport, limits=Limits()).of(SERVER, URL)
        except BrokerError as error:
            return error.code


def challenging(status: int, challenge: str) -> ProviderResponse:
    return dataclasses.replace(answer({}, status), challenge=challenge)


FULL = f'Bearer resource_metadata="{NAMED}", scope="read write"'
BUSY, LOST, UNSENT = answer({}, 503), TransportFailed("lost", sent=True), TransportFailed("no route", sent=False)
LOOKS: dict[str, tuple[Any, dict[str, Any], Any, list[str]]] = {
    "its challenge names the document": (
        challenging(401, FULL), {NAMED: answer(DOCUMENT)}, ("read", "write"), [NAMED],
    ),
    "a challenge with another status is none": (
        challenging(200, FULL), {WELL_KNOWN[0]: answer(DOCUMENT)}, (), WELL_KNOWN[:1],
    ),
    "a challenge without a document": (
        challenging(401, 'Bearer scope="read"'), {WELL_KNOWN[0]: answer(DOCUMENT)}, ("read",), WELL_KNOWN[:1],
    ),
    "no challenge": (answer({}, 401), {WELL_KNOWN[1]: answer(DOCUMENT)}, (), WELL_KNOWN),
    "a server whose answer does not end": (LOST, {WELL_KNOWN[0]: answer(DOCUMENT)}, (), WELL_KNOWN[:1]),
    "a server that is not there": (UNSENT, {}, Code.PROVIDER_UNREACHABLE, []),
    "no document": (answer({}, 401), {}, Code.MCP_METADATA_MISSING, WELL_KNOWN),
    "a busy server is asked no further": (
        answer({}, 401), {WELL_KNOWN[0]: BUSY}, Code.PROVIDER_UNREACHABLE, WELL_KNOWN[:1],
    ),
    "a fault of the first document is told rather than a missing second": (
        answer({}, 401), {WELL_KNOWN[0]: answer({**DOCUMENT, "bearer_methods_supported": ["body"]})},
        Code.MCP_UNSUPPORTED, WELL_KNOWN,
    ),
    "the document of its own address is not asked for twice where the challenge names it": (
        challenging(401, f'Bearer resource_metadata="{NAMED}"'), {}, Code.MCP_METADATA_MISSING, [NAMED],
    ),
    "an address that is refused": (
        challenging(401, FULL), {NAMED: BrokerError(Code.APP_MISCONFIGURED)}, Code.MCP_METADATA_MISSING, [NAMED],
    ),
}  # fmt: skip


@pytest.mark.case("115")
@pytest.mark.parametrize("name", LOOKS)
async def test_a_server_is_asked_at_the_address_of_its_challenge_else_at_the_well_known_ones(name: str) -> None:
    server, pages, expected, asked = LOOKS[name]
    wire = Wire(server, pages)
    found = await wire.look()
    assert [("POST", URL), *(("GET", url) for url in asked)] == wire.asked
    if isinstance(expected, Code):
        assert expected is found
    else:
        assert isinstance(found, ProtectedResource)
        assert (URL, ("https://id.example",), ("read",), expected) == (
            found.resource, found.issuers, found.scopes, found.challenged,
        )  # fmt: skip


@pytest.mark.case("37")
@pytest.mark.parametrize(
    ("named", "is_asked"),
    [
        (WELL_KNOWN[0], True),
        (WELL_KNOWN[0].replace("m.example", "M.Example"), True),
        ("https://wiki.corp-inner.example/x", False),
        ("https://m.example:8443/x", False),
        ("https://m.example@wiki.corp-inner.example/x", False),
        ("https:///x", False),
        ("//wiki.corp-inner.example/x", False),
    ],
)
async def test_where_the_proxy_looks_names_up_a_challenge_names_no_other_host(named: str, is_asked: bool) -> None:
    wire = Wire(challenging(401, f'Bearer resource_metadata="{named}"'), {named: answer(DOCUMENT)})
    wire.proxy_resolves = True
    found = await wire.look()
    assert is_asked is isinstance(found, ProtectedResource)
    assert [("POST", URL), *([("GET", named)] if is_asked else [])] == wire.asked


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"resource": f"{URL}/"}, None),
        ({"resource": "https://m.example/other"}, Code.MCP_METADATA_MISSING),
        ({"resource": f"{URL}#part"}, Code.MCP_METADATA_MISSING),
        ({"resource": 7}, Code.MCP_METADATA_MISSING),
        ({"authorization_servers": []}, Code.MCP_METADATA_MISSING),
        ({"dpop_bound_access_tokens_required": True}, Code.MCP_UNSUPPORTED),
        ({"dpop_bound_access_tokens_required": "yes"}, None),
        ({"bearer_methods_supported": ["header", "body"]}, None),
        ({"bearer_methods_supported": []}, Code.MCP_UNSUPPORTED),
        ({"bearer_methods_supported": None}, None),
    ],
)
async def test_a_document_is_about_this_resource_names_an_issuer_and_takes_bearer_tokens_in_a_header(
    members: dict[str, Any], expected: Code | None
) -> None:
    body = json.dumps({**DOCUMENT, **members}).encode()
    found = await Wire(answer({}, 401), {WELL_KNOWN[0]: answer(body), WELL_KNOWN[1]: answer(body)}).look()
    assert expected is (found if isinstance(found, Code) else None)
