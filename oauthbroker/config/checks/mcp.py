"""Check an app with `provider: mcp`: its server, and the settings that the server's metadata takes the place of."""

from __future__ import annotations

from oauthbroker.config.checks.endpoints import fetched_problem
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.model.mcp_server import McpServer, canonical_uri, is_same_or_above
from oauthbroker.model.provider_api import ApiHost, written_host
from oauthbroker.model.provider_networks import ProviderNetworks


def server_of(app: Merged) -> McpServer | None:
    """Return the server of an app. None for other apps, and for an address with a problem."""
    said = app.spec.mcp
    if app.spec.provider != MCP or said is None or said.url is None or url_checks.problem(said.url):
        return None
    has_client = app.spec.client is not None and app.spec.client.client_id is not None
    return McpServer(canonical_uri(said.url), said.issuer or "", has_client)


def resource_of(app: Merged) -> tuple[str, ...]:
    """Return the resources that requests name (RFC 8707): those written, else an MCP server's own URI."""
    server, written = server_of(app), tuple(app.spec.resource or ())
    if server is None:
        return written
    return tuple(map(canonical_uri, filter(_is_url, written))) or (server.url,)


def host_of_server(app: Merged) -> list[ApiHost]:
    """Return the host that a token is for where `api.hosts` names none."""
    server = server_of(app)
    if server is None:
        return []
    scheme, name, port = url_checks.origin_of(server.url)
    found = written_host(f"{'http://' if scheme == 'http' else ''}{name}:{port}")
    return [found] if found is not None else []


def check_mcp(app: Merged, reach: ProviderNetworks) -> None:
    spec = app.spec
    if spec.provider != MCP:
        if spec.mcp is not None and spec.provider:
            app.written.refuse(("mcp",), "an MCP server is for provider: mcp", "remove it, or write that", key=True)
        return
    said = {} if spec.mcp is None else {"url": spec.mcp.url, "issuer": spec.mcp.issuer}
    if said.get("url") is None:
        app.written.missing(("mcp", "url"), "write the address of the MCP server")
    if spec.client is not None and spec.client.client_id is not None and said.get("issuer") is None:
        app.written.missing(("mcp", "issuer"), "write the issuer at which the client is registered: no other gets it")
    for name, url in said.items():
        if url is not None and (problem := fetched_problem(url, reach, query=name == "url")):
            app.written.refuse(("mcp", name), *problem)
    if spec.flow in {"deviceCode", "clientCredentials"}:
        app.written.refuse(("flow",), "not a flow for MCP servers", "write flow: authorizationCode")
    for slot, name in ENDPOINT_NAMES.items():
        if spec.endpoints is not None and getattr(spec.endpoints, slot) is not None:
            app.written.refuse(("endpoints", name), "the server's metadata names it", "remove it", key=True)
    _check_resource(app)


def _check_resource(app: Merged) -> None:
    """Check that the resource is the server, or lies above it on its origin: another one's tokens are not for it."""
    at: Keys = ("resource",)
    server, written = server_of(app), app.spec.resource or []
    if server is None or not written or not all(map(_is_url, written)):
        return
    if len(written) > 1 or not is_same_or_above(canonical_uri(written[0]), server.url):
        hint = "remove it, or write the resource of the server's metadata if it is the start of mcp.url"
        app.written.refuse(at, "not the resource of this MCP server", hint)


def _is_url(text: str) -> bool:
    return url_checks.problem(text) is None
