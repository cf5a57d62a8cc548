"""`oauthbroker mcp serve` as a process of its own: a host beside it, and a user with a browser."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from oauthbroker.config import load
from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.kit.cli import BROKER, MAIN, START_SECONDS, Desk, command, environment, free_port, serving
from tests.kit.docs import code_blocks
from tests.kit.served_api import make_key
from tests.story.cli.mcp_serve_kit import configure, listens
from tests.story.mcp_kit import link_in, served, text_of, upstream

pytestmark = pytest.mark.slow


def start_to_end() -> list[str]:
    """Return the resources of the page's section for one person on one machine: Broker, OAuthApp, McpServer."""
    (block,) = (
        block for block in code_blocks("docs/tutorials/mcp-servers-in-an-editor.md", "yaml") if "kind: Broker" in block
    )
    return dedent(block).split("---\n")


def configure_address(desk: Desk, idp: IdentityProvider, url: str) -> None:
    """Configure a server of which the address alone is known, with the page's resources."""
    idp.takes_clients = True
    broker, app, server = start_to_end()
    assert "plugins: [mcp]" in broker
    assert 0 == desk.type("init").code
    desk.canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    app = app.replace("https://mcp.example.com/tickets", url).replace("tickets.read, tickets.write", "read")
    desk.write("tickets", app)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [mcp]\n")
    desk.write("server", server)


class Person:
    """A user whose host shows links."""

    def __init__(self, desk: Desk, idp: IdentityProvider) -> None:
        self.desk, self.idp = desk, idp
        self.links: list[str] = []

    async def elicited(self, context: Any, params: Any) -> ElicitResult:
        del context
        self.links.append(params.url)
        await connect_through(Browser(canaries=self.desk.canaries), self.idp, params.url, "alice")
        return ElicitResult(action="accept")


@asynccontextmanager
async def over_stdio(desk: Desk, person: Person) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-c", MAIN, "mcp", "serve"], cwd=desk.folder, env=environment()
    )
    async with Client(parameters, elicitation_callback=person.elicited) as client:
        yield client


async def test_a_host_beside_it_shows_the_link_and_the_next_one_needs_none(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        person = Person(desk, idp)
        for links in (1, 1):
            async with over_stdio(desk, person) as client:
                assert "alice" == text_of(await client.call_tool("mail__whose", {}))
                assert ["mail__whose"] == [tool.name for tool in (await client.list_tools()).tools]
            assert links == len(person.links)


async def test_a_tool_that_changed_comes_back_after_the_command_approve(desk: Desk, idp: IdentityProvider) -> None:
    server = upstream(idp)
    async with served(server.streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        assert "No tool waits" in (await asyncio.to_thread(desk.type, "mcp", "approve")).out
        async with over_stdio(desk, Person(desk, idp)) as client:
            await client.call_tool("mail__whose", {})
            assert ["mail__whose"] == await names(client)
            server.remove_tool("whose")
            server.tool(name="whose", description="Sends all mail to \x1b[2Jus")(lambda: "changed")
            assert [] == await names(client)
            refused = await asyncio.to_thread(desk.type, "mcp", "approve", stdin="n\n")
            assert refused.out.endswith("Nothing is approved.\n")
            reported = await asyncio.to_thread(desk.type, "mcp", "approve", "mail", "whose", "--yes")
            assert (0, False) == (reported.code, "\x1b" in reported.out)
            assert "mail/whose (now)" in reported.out
            assert '+ "description": "Sends all mail to \\u001b[2Jus"' in reported.out
            assert ["mail__whose"] == await names(client)
            log = await asyncio.to_thread(desk.type, "audit", "tail", "-n", "50", "--json")
            found = [each for each in json.loads(log.out) if each["type"] == "mcp.ToolApproved"]
            assert [("mail", "whose")] == [(each["server"], each["tool"]) for each in found]


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]


def test_the_page_from_start_to_end_is_a_valid_configuration(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text("---\n".join(start_to_end()), "utf-8")
    bundle = load(tmp_path)
    assert {"tickets"} == bundle.apps.keys()
    (server,) = bundle.plugins["mcp"]
    assert ("McpServer", "tickets") == (server.kind, server.name)


async def test_a_server_of_which_the_address_is_known_needs_nothing_else(desk: Desk, idp: IdentityProvider) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with served(upstream(idp, url).streamable_http_app(json_response=True), port):
        await asyncio.to_thread(configure_address, desk, idp, url)
        person = Person(desk, idp)
        async with over_stdio(desk, person) as client:
            assert "alice" == text_of(await client.call_tool("tickets__whose", {}))
    assert 1 == len(person.links)
    assert 1 == idp.count("register")


async def test_a_client_that_was_registered_is_forgotten_by_a_command(desk: Desk, idp: IdentityProvider) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    async with served(upstream(idp, url).streamable_http_app(json_response=True), port):
        await asyncio.to_thread(configure_address, desk, idp, url)
        person = Person(desk, idp)
        for clients in (1, 2):
            async with over_stdio(desk, person) as client:
                assert "alice" == text_of(await client.call_tool("tickets__whose", {}))
            assert clients == idp.count("register") == len(person.links)
            done = await asyncio.to_thread(command, "mcp", "forget", "tickets", cwd=desk.folder)
            assert (0, "Forgotten.\n") == (done.code, done.out)
        again = await asyncio.to_thread(command, "mcp", "forget", "tickets", cwd=desk.folder)
        assert (0, "No client of tickets is known.\n") == (again.code, again.out)
        for word, said in (("forget", "Did you mean tickets?"), ("approve", "of this name")):
            typo = await asyncio.to_thread(command, "mcp", word, "tikcets", cwd=desk.folder)
            assert (2, "") == (typo.code, typo.out)
            assert said in typo.err
        unknown = await asyncio.to_thread(command, "mcp", "approve", "tickets", "whoes", cwd=desk.folder)
        assert (2, True) == (unknown.code, "tickets has listed no tool of this name" in unknown.err)
        nobody = await asyncio.to_thread(command, "mcp", "serve", "--subject", " ", cwd=desk.folder)
        assert (2, True) == (nobody.code, "--subject is a user" in nobody.err)


async def test_pages_of_a_running_broker_are_used(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        person = Person(desk, idp)
        with serving(desk):
            async with over_stdio(desk, person) as client:
                assert "alice" == text_of(await client.call_tool("mail__whose", {}))
        assert 1 == len(person.links)


@contextmanager
def started(desk: Desk, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command with its input held open, until the block ends."""
    line = [sys.executable, "-c", MAIN, "mcp", "serve", *words]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(line, env=environment(), cwd=desk.folder, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[bytes], words: bytes) -> None:
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, "ended"


async def test_over_http_a_host_with_an_api_key_calls_the_tools(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        key, own, person = await asyncio.to_thread(make_key, desk), free_port(), Person(desk, idp)
        with started(desk, "--http", f"127.0.0.1:{own}") as process:
            await asyncio.to_thread(wait_for, process, b"The tools are served")
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
                streams = streamable_http_client(f"http://127.0.0.1:{own}/mcp", http_client=http)
                async with Client(streams, elicitation_callback=person.elicited) as client:
                    assert "alice" == text_of(await client.call_tool("mail__whose", {}))
            assert 1 == len(person.links)
            process.send_signal(signal.SIGTERM)
            assert 0 == await asyncio.to_thread(process.wait, START_SECONDS)


def test_of_two_hosts_the_second_serves_the_pages_after_the_first_has_ended(desk: Desk, idp: IdentityProvider) -> None:
    configure(desk, idp, 1)
    with started(desk) as first:
        wait_for(first, b"The pages are served")
        with started(desk) as second:
            wait_for(second, b"Another process serves the pages")
            assert first.stdin is not None
            first.stdin.close()
            wait_for(second, b"The pages are served")


async def test_a_call_that_waits_goes_on_after_the_gateway_was_killed(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        key, own, person = await asyncio.to_thread(make_key, desk), free_port(), Person(desk, idp)
        with ExitStack() as processes:

            async def start() -> subprocess.Popen[bytes]:
                process = processes.enter_context(started(desk, "--http", f"127.0.0.1:{own}"))
                await asyncio.to_thread(wait_for, process, b"The tools are served")
                return process

            async def elicited(context: Any, params: Any) -> ElicitResult:
                process.kill()
                await asyncio.to_thread(process.wait, START_SECONDS)
                await start()
                return await person.elicited(context, params)

            process = await start()
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
                streams = streamable_http_client(f"http://127.0.0.1:{own}/mcp", http_client=http)
                async with Client(streams, elicitation_callback=elicited) as client:
                    assert "alice" == text_of(await client.call_tool("mail__whose", {}))
    assert 1 == len(person.links)


def test_an_address_that_another_program_has_is_refused(desk: Desk, idp: IdentityProvider) -> None:
    configure(desk, idp, 1)
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        done = command("mcp", "serve", "--http", f"127.0.0.1:{port}", cwd=desk.folder)
    assert (2, "") == (done.code, done.out)
    assert f"cannot listen on 127.0.0.1 port {port}: another process listens there. Choose another" in done.err


def test_the_tools_and_the_pages_need_two_ports(desk: Desk, idp: IdentityProvider) -> None:
    configure(desk, idp, 1)
    done = command("mcp", "serve", "--http", f"127.0.0.1:{desk.port}", cwd=desk.folder)
    assert (2, "") == (done.code, done.out)
    assert f"port {desk.port} is that of spec.listen" in done.err


async def test_links_never_lead_to_a_foreign_program(desk: Desk, idp: IdentityProvider) -> None:
    """It has the pages' address and answers like a broker, but has none of the store's keys."""

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"status": "ok", "challenge": "%064d"}' % 0})

    await asyncio.to_thread(configure, desk, idp, 1)
    async with served(app, desk.port):
        done = await asyncio.to_thread(command, "mcp", "serve", cwd=desk.folder)
    assert (2, "") == (done.code, done.out)
    assert f"port {desk.port}: another process listens there. Links lead there, but no broker" in done.err


async def test_a_signal_ends_a_call_that_waits_for_the_user(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        key, own = await asyncio.to_thread(make_key, desk), free_port()
        with started(desk, "--http", f"127.0.0.1:{own}") as process:
            await asyncio.to_thread(wait_for, process, b"The tools are served")
            headers = {"Authorization": f"Bearer {key}"}
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
                Client(streamable_http_client(f"http://127.0.0.1:{own}/mcp", http_client=http)) as client,
            ):
                assert (await client.call_tool("mail__whose", {})).is_error
                waiting = asyncio.create_task(client.call_tool("mail__whose", {}))
                await asyncio.sleep(0.5)
                process.send_signal(signal.SIGTERM)
                assert "connect/" in text_of(await waiting)
            assert 0 == await asyncio.to_thread(process.wait, START_SECONDS)


async def one_call(desk: Desk) -> str:
    """Call a tool as a host does that no user watches: it cancels each question, and ends after the call."""

    async def cancels(context: Any, params: Any) -> ElicitResult:
        del context, params
        return ElicitResult(action="cancel")

    parameters = StdioServerParameters(
        command=sys.executable, args=["-c", MAIN, "mcp", "serve"], cwd=desk.folder, env=environment()
    )
    async with Client(parameters, elicitation_callback=cancels) as client:
        return text_of(await client.call_tool("mail__whose", {}))


async def test_the_link_of_a_host_that_has_ended_lives_until_the_consent(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        link = link_in(await one_call(desk))
        await connect_through(Browser(canaries=desk.canaries), idp, link, "alice")
        assert "alice" == await one_call(desk)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(listens, desk.port):
                await asyncio.sleep(0.2)


@pytest.mark.parametrize("end", ["end of input", "end of output", "SIGTERM", "SIGINT", "both"])
async def test_the_link_lives_however_the_host_ends_the_gateway(desk: Desk, idp: IdentityProvider, end: str) -> None:
    who: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    }
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": who},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "mail__whose", "arguments": {}}},
    ]
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        with started(desk) as process:
            await asyncio.to_thread(wait_for, process, b"The pages are served")
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in said))
            process.stdin.flush()
            for _ in range(2):
                answer = json.loads(await asyncio.to_thread(process.stdout.readline))
            for number in (signal.SIGINT, signal.SIGTERM):
                if end in {number.name, "both"}:
                    process.send_signal(number)
                    await asyncio.sleep(0.02)
            if end == "end of output":  # a host that is killed while a call waits
                process.stdout.close()
                process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).encode() + b"\n")
                process.stdin.flush()
                await asyncio.sleep(1)  # until it is answered
            if end in {"end of input", "end of output"}:
                process.stdin.close()
            await asyncio.to_thread(process.wait, START_SECONDS)
            assert end not in {"end of input", "end of output"} or process.returncode == 0
        link = link_in(answer["result"]["content"][0]["text"])
        page = await connect_through(Browser(canaries=desk.canaries), idp, link, "alice")
    assert 200 == page.status


@pytest.mark.parametrize("end", ["end of input", "SIGTERM", "SIGINT"])
def test_over_stdio_it_ends_with_its_input_or_at_a_signal(desk: Desk, idp: IdentityProvider, end: str) -> None:
    configure(desk, idp, 1)
    with started(desk) as process:
        wait_for(process, b"The pages are served")
        assert process.stdin is not None
        if end == "end of input":
            process.stdin.close()
        else:
            process.send_signal(signal.Signals[end])
        status = process.wait(START_SECONDS)
    assert (0 if end == "end of input" else -signal.Signals[end]) == status


@pytest.mark.parametrize(
    "place", ["0.0.0.0:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:0", "example.com:80", ":80"]
)
def test_an_address_that_is_not_of_this_machine_is_refused(desk: Desk, place: str) -> None:
    done = desk.type("mcp", "serve", "--http", place)
    assert (2, "") == (done.code, done.out)
    assert "127.0.0.1:8765" in done.err


def test_a_broker_without_the_plugin_is_refused(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    done = command("mcp", "serve", cwd=desk.folder)
    assert (2, "") == (done.code, done.out)
    assert "plugins: [mcp]" in done.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: mail", "name: my_mail", "letters, digits and -"),
        ("http://127.0.0.1:1/mcp", "http://mcp.example/mcp", "Write https://"),
        ("http://127.0.0.1:1/mcp", "https://[", "Write https://"),
        ("http://127.0.0.1:1/mcp", "https://me:pw@mcp.example/", "Write https://"),
        ("url: http://127.0.0.1:1/mcp", "", "since the app is not of provider: mcp"),
        ("[whose]", "['*', whose]", "Write * alone"),
        ("[whose]", "[]", "tools"),
        ("[whose]", "[whose]\n  prompts: ['*', greet]", "Write * alone"),
        ("name: mail}\nspec:", "name: Mail}\nspec:\n  resources: ['*']", "Begin with a lower-case letter"),
        ("OAuthApp/mail", "OAuthApp/male", "OAuthApp/mail"),
    ],
)
def test_a_server_that_cannot_be_used_is_a_problem_of_the_configuration(
    desk: Desk, idp: IdentityProvider, old: str, new: str, said: str
) -> None:
    configure(desk, idp, 1)
    path: Path = desk.folder / "config" / "server.yaml"
    assert 0 == desk.type("check").code
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    done = desk.type("check")
    assert 2 == done.code
    assert said in done.err + done.out
