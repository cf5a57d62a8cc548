"""Which files of the package open connections, and why. A new one goes through the transport, which knows the company's
proxy and refuses inner addresses, or gets a line here with its reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "oauthbroker"

# A library that connects by itself, wherever it is imported.
LIBRARIES = (
    "aiohttp", "asyncpg", "boto3", "botocore", "ftplib", "grpc", "http.client", "imaplib", "nats", "poplib", "psycopg",
    "psycopg_pool", "redis", "requests", "smtplib", "urllib.request", "urllib3", "websockets", "xmlrpc.client",
)  # fmt: skip
# What connects, of libraries that do more than that: the last name of a call.
OPENING = {
    "AnyIOBackend", "AsyncConnectionPool", "AsyncHTTPTransport", "HTTPTransport", "Transport", "connect", "connect_ex",
    "connect_tcp", "connect_unix", "create_connection", "create_datagram_endpoint", "create_engine",
    "create_unix_connection", "getaddrinfo", "gethostbyname", "open_connection", "open_unix_connection",
    "sock_connect", "streamable_http_client", "sse_client", "start_connection",
}  # fmt: skip
# A client with no transport of ours makes one of its own.
CLIENTS = {"AsyncClient", "Client", "Session"}
WEB = {"httpx", "httpx2", "lib"}
_PARSER = re.compile(r"^\s*(?:import|from) (?:h11|httptools)\b", re.MULTILINE)
SHORTCUTS = {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream"}

# Each file that opens connections, or a folder of them.
KNOWN = {
    "protocol/network/transport.py": "the transport: requests to providers, discovery, keys, userinfo, facts, revocation",
    "protocol/network/api_transport.py": "the same dialer: injected requests, /v1/proxy, MCP servers, webhooks",
    "protocol/network/dialing.py": "the dialer: the company's proxy, or an address that was checked",
    "protocol/network/proxy_tunnel.py": "the connection to the proxy itself",
    "protocol/network/pool.py": "the pool of the transport, which the dialer connects",
    "protocol/network/name_lookups.py": "asks the machine's resolver",
    "protocol/request_signatures.py": "botocore signs with it, and sends nothing",
    "wiring/foundation.py": "makes the broker's one transport",
    "wiring/outside_transport.py": "makes a transport: `mcp add` and `providers new` ask a server",
    "diagnostics/probing.py": "makes a transport: `doctor` asks providers; and one for the broker's own public address",
    "diagnostics/own_brokers.py": "makes a transport: asks the program at an address of this machine",
    "diagnostics/receivers.py": "makes a transport: `doctor` asks webhooks",
    "events/forwarding/senders.py": "makes a transport: webhooks of forwarders",
    "key_services/outside.py": "makes a transport: Vault and AWS, in the loop of a thread",
    "plugin_services/public_web.py": "makes a transport: public addresses that a tool or flow names",
    "key_services/aws_service.py": "boto3 finds credentials by its own requests; the service is asked by our transport",
    "events/forwarding/jetstream.py": "NATS: no HTTP, does not go through the proxy",
    "flowtools/running/mail.py": "SMTP: no HTTP, does not go through the proxy",
    "store/postgres": "PostgreSQL: no HTTP, does not go through the proxy",
    "store/migration/raw_rows.py": "PostgreSQL: no HTTP, does not go through the proxy",
    "flowtools/entities/database.py": "the data of flows: SQLite or PostgreSQL",
    "flowtools/running/working.py": "the data of flows",
    "flowtools/cli/data_commands.py": "a file of SQLite",
    "client/async_transport.py": "the client of a tool: to its own broker",
    "client/sync_transport.py": "the client of a tool: to its own broker",
    "mcp/upstream_sessions.py": "MCP's client on a transport that injects",
    "cli/health.py": "the broker on this machine",
    "cli/demo/agent.py": "the broker of the demonstration, on this machine",
    "personal/serve_socket.py": "tries whether the person's own broker has the Unix socket",
    "serving/listeners.py": "tries whether another broker has the Unix socket",
    "tools/orchestration": "a Unix socket between an agent's process and the broker",
    "testing/browser.py": "a browser for tests",
}


def opens(source: str) -> Iterator[str]:
    """Yield what this source opens connections with."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if _connects(each.name))
            case ast.ImportFrom(module=str(module), names=names, level=0):
                whole = [f"{module}.{each.name}" for each in names]
                yield from (each for each in whole if _connects(each) or _is_client(module, each.rpartition(".")[2]))
            case ast.Call(func=ast.Name(id=name)) if name in OPENING:
                yield name
            case ast.Call(func=ast.Attribute(value=owner, attr=name), keywords=keywords):
                is_bare = not any(each.arg == "transport" for each in keywords)
                if name in OPENING or (is_bare and _is_client(ast.unparse(owner), name)):
                    yield ast.unparse(node.func)


def _connects(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in LIBRARIES)


def _is_client(owner: str, name: str) -> bool:
    return owner in WEB and name in CLIENTS | SHORTCUTS


def place_of(path: str) -> str:
    """Return the line of `KNOWN` for a file: its own, or that of its folder."""
    return next((each for each in (path, path.rpartition("/")[0]) if each in KNOWN), path)


def test_each_file_that_opens_connections_is_known_and_no_other():
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    found = {path: sorted({*opens(text)}) for path, text in files.items()}
    unknown = {path: how for path, how in found.items() if how and place_of(path) not in KNOWN}
    assert {} == unknown, "send through the transport, or say here why not"
    assert {*KNOWN} == {place_of(path) for path, how in found.items() if how}


def test_each_transport_is_given_the_companys_proxy():
    """All but two: a program on this machine, and the broker's own public address as this machine reaches it."""
    made = [
        (path.relative_to(PACKAGE).as_posix(), ast.unparse(node))
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Transport"
    ]
    without = [(path, call) for path, call in made if "proxy=" not in call]
    assert ["diagnostics/own_brokers.py", "diagnostics/probing.py"] == [path for path, _ in without]
    assert "settings.public_base_url" in without[1][1]
    assert len(made) == 1 + sum("makes a transport" in why or "makes the broker's" in why for why in KNOWN.values())


def test_the_page_of_http1_names_every_place_that_imports_a_parser_of_it():
    """Beside the servers of tests, which send wrong answers on purpose."""
    page = (PACKAGE.parent / "docs" / "http1.md").read_text("utf-8")
    places = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if _PARSER.search(path.read_text("utf-8"))
    }
    broker = {path for path in found if not path.startswith("testing/")}
    assert 3 == len(places)
    assert set() == {path for path in broker if not path.startswith(tuple(places))}
    assert all(any(path.startswith(place) for path in broker) for place in places)


@pytest.mark.parametrize(
    "source",
    [
        "import requests",
        "def late():\n    from urllib.request import urlopen",
        "from urllib import request",
        "import http.client as web",
        "from nats.aio.client import Client",
        "import httpx2\nhttpx2.get('https://provider.example/')",
        "import httpx2\nhttpx2.AsyncClient(trust_env=False)",
        "from httpx import AsyncClient",
        "import socket\nsocket.create_connection(('provider.example', 443))",
        "import socket\nsocket.socket().connect(('provider.example', 443))",
        "import asyncio\nasyncio.open_connection('provider.example', 443)",
        "from asyncio import open_connection\nopen_connection('provider.example', 443)",
        "loop.create_connection(object, 'provider.example', 443)",
        "import anyio\nanyio.connect_tcp('provider.example', 443)",
        "httpcore2.AsyncConnectionPool()",
        "Transport(reach=reach)",
    ],
)
def test_every_form_of_opening_one_is_found(source: str):
    assert [*opens(source)]


def test_a_client_on_a_transport_of_ours_opens_none():
    assert [] == [*opens("import httpx2\nhttpx2.AsyncClient(transport=self.transport(turn), timeout=1)")]
