"""docs/how-to/nginx.md: both blocks, run by a real nginx. Only addresses, ports and paths are other ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import httpx2
import pytest

from oauthbroker.testing import Authority, Browser, Canaries, IdentityProvider, connect_through, off_the_record
from oauthbroker.web.api.request_models import EventsQuery
from tests.kit import installed
from tests.kit.cli import Desk, free_port, serving
from tests.story.guides.guide import changed, of

pytestmark = pytest.mark.slow
PAGE = "how-to/nginx"
PATIENCE = 60
WRAPPER = """\
daemon off; master_process off; pid {folder}/nginx.pid;
events {{}}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/oauthbroker.conf;
}}
"""


class Proxy:
    """nginx with the page's configuration, in a folder of its own, in front of two ports."""

    def __init__(self, folder: Path, pages: int, api: int, path: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self.base = f"https://127.0.0.1:{self.port}{path}"
        self.authority = Authority(folder)
        self.authority.issue()
        [pem] = folder.glob("server-*.pem")
        self._changes = {
            "/etc/nginx/tls/agents.example.com.pem": str(pem),
            "/etc/nginx/tls/agents.example.com.key": str(pem),
            "/var/log/nginx": str(folder),
            "listen 443": f"listen 127.0.0.1:{self.port}",
            "127.0.0.1:8420": f"127.0.0.1:{pages}",
            "127.0.0.1:8421": f"127.0.0.1:{api}",
            "10.0.0.0/8": "127.0.0.0/8",
        }

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority.file)

    @contextmanager
    def running(self, *, api: bool = False) -> Iterator[None]:
        """With `api`, its second block takes the place of the first one's `location /v1/`."""
        site, location = of(PAGE, "nginx")
        assert all(each in site + location for each in self._changes)
        if api:
            site, count = re.subn(r"    location /v1/ \{.*?\n    \}\n", lambda _: location, site, flags=re.DOTALL)
            assert 1 == count
        (self.folder / "oauthbroker.conf").write_text(changed(site, self._changes))
        main = self.folder / "nginx.conf"
        main.write_text(WRAPPER.format(folder=self.folder))
        nginx = [str(installed.nginx()), "-e", str(self.folder / "start.log"), "-c", str(main)]
        process = subprocess.Popen(nginx, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={"PATH": os.defpath})
        try:
            self._wait(process)
            yield
        finally:
            process.terminate()
            assert 0 == process.wait(PATIENCE)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        late = time.monotonic() + PATIENCE
        while time.monotonic() < late and process.poll() is None:
            try:
                return self._hello()
            except OSError:
                time.sleep(0.05)
        pytest.fail((self.folder / "start.log").read_text())

    def _hello(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 1):
            pass

    def client(self, **headers: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self.base, verify=self.trust, headers=headers, trust_env=False, timeout=PATIENCE
        )


@pytest.fixture(autouse=True)
def nginx() -> None:
    installed.demand(["nginx (package nginx-light)"] if installed.nginx() is None else [])


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


class Backend(BaseHTTPRequestHandler):
    """Notes what a proxy makes of a request."""

    seen: ClassVar[list[dict[str, list[str]]]] = []

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass

    def do_GET(self) -> None:
        self.seen.append({name.lower(): self.headers.get_all(name, []) for name in self.headers})
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


async def test_the_broker_is_told_the_host_unchanged_and_the_address_that_nginx_sees(tmp_path: Path) -> None:
    backend = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    thread = Thread(target=backend.serve_forever, daemon=True)
    thread.start()
    proxy = Proxy(tmp_path, backend.server_port, backend.server_port)
    lies = {"X-Forwarded-For": "203.0.113.9", "Host": "Agents.Example.com:8443"}
    try:
        with proxy.running():
            async with proxy.client(**lies) as client:
                assert 200 == (await client.get("/connect/x")).status_code
                assert 404 == (await client.get("/v1/turns")).status_code
    finally:
        backend.shutdown()
        backend.server_close()
        thread.join()
    [seen] = Backend.seen
    assert (["127.0.0.1"], ["Agents.Example.com:8443"]) == (seen["x-forwarded-for"], seen["host"])


@pytest.fixture
def path() -> str:
    """Of `publicBaseUrl`."""
    return ""


@pytest.fixture
def stage(path: str, tmp_path: Path, idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[Desk, Proxy, str]:  # fmt: skip
    """The page's Broker, with an app; not served yet. The third is where its API listens."""
    desk, api = Desk(tmp_path, canaries, monkeypatch, capsys), free_port()
    (tmp_path / "nginx").mkdir()
    proxy = Proxy(tmp_path / "nginx", desk.port, api, path)
    secret = desk.serve_app_of(idp)
    idp.change("client-mail", redirect_uris=(f"{proxy.base}/oauth/callback/mail",))
    [bundle] = of(PAGE, "yaml")
    addresses = {
        "https://agents.example.com": proxy.base,
        "port: 8420": f"port: {desk.port}",
        "port: 8421": f"port: {api}",
    }
    assert all(each in bundle for each in addresses)
    desk.write("broker", changed(bundle, addresses) + "  weaken: [plainHttpProvider]\n")
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert 0 == desk.type("secrets", "set", "mail", "client_secret", stdin=secret).code
    return desk, proxy, f"http://127.0.0.1:{api}"


@pytest.fixture
def key(stage: tuple[Desk, Proxy, str]) -> dict[str, str]:
    """A runtime's."""
    desk = stage[0]
    desk.canaries.may_show("API key")
    key = desk.type("api-keys", "create", "my-runtime", "--role", "runtime").out.strip()
    desk.canaries.add(key, "API key")
    return {"Authorization": f"Bearer {key}"}


BEGIN = {
    "turn": {"agentName": "planner", "instanceKey": "1", "auth": {"subjects": {"user": "idp:user:U234567"}}},
    "tools": {},
}


async def link_from(client: httpx2.AsyncClient, url: str = "") -> str:
    """A runtime's turn asks for a token; the link that it gets."""
    begun = (await client.post(f"{url}/v1/turns", json=BEGIN)).json()
    turn = {"Authorization": f"Bearer {begun['turnToken']}"}
    asked = await client.post(f"{url}/v1/tokens", json={"oauthAppRef": "OAuthApp/mail"}, headers=turn)
    return str(asked.json()["authorizationUrl"])


async def agree(proxy: Proxy, idp: IdentityProvider, canaries: Canaries, link: str) -> None:
    assert link.startswith(f"{proxy.base}/connect/")
    page = await connect_through(Browser(canaries=canaries, trust=proxy.authority.file), idp, link, "alice")
    assert 200 == page.status, page.text


@pytest.mark.parametrize("path", ["", "/b"])
async def test_a_person_connects_over_tls_and_the_api_and_the_logs_keep_to_themselves(
    stage: tuple[Desk, Proxy, str], key: dict[str, str], idp: IdentityProvider, canaries: Canaries
) -> None:
    """The canaries sweep nginx's logs, too."""
    desk, proxy, api = stage
    with proxy.running():
        with serving(desk):
            async with proxy.client(**key) as client:
                assert 404 == (await client.get("/v1/agents/planner/events")).status_code
                with off_the_record():
                    link = await link_from(client, api)
                await agree(proxy, idp, canaries, link)
        with off_the_record():
            async with proxy.client() as client:
                assert 502 == (await client.get(link.removeprefix(proxy.base))).status_code, "the broker has ended"
                shutil.rmtree(proxy.folder / "body")
                full = await client.post(link.removeprefix(proxy.base), content=bytes(1 << 16))
                assert 500 == full.status_code, "a critical error: the body cannot be written to the disk"
    log = (proxy.folder / "oauthbroker.log").read_text()
    assert re.search(r"(?m)^\S+ 127\.0\.0\.1 GET 502 \d+ [\d.]+$", log), log
    assert "/connect/" not in log + (proxy.folder / "start.log").read_text()


async def test_where_the_api_is_wanted_its_events_are_not_held_back(
    stage: tuple[Desk, Proxy, str], key: dict[str, str], idp: IdentityProvider, canaries: Canaries
) -> None:
    desk, proxy, _ = stage
    with proxy.running(api=True), serving(desk), off_the_record():
        async with proxy.client(**key) as client:
            link = await link_from(client)
            poll = asyncio.create_task(client.get("/v1/agents/planner/events?wait=50"))
            await agree(proxy, idp, canaries, link)
            polled = (await poll).json()
            ack = f"/v1/agents/planner/events/{polled['event']['eventId']}/nack"
            assert 204 == (await client.post(ack, json={"lease": polled["lease"]})).status_code
            stream = client.stream("GET", "/v1/agents/planner/events", headers={"Accept": "text/event-stream"})
            async with asyncio.timeout(PATIENCE), stream as answer:
                data = await anext(line async for line in answer.aiter_lines() if line.startswith("data:"))
            assert polled["event"]["eventId"] == json.loads(data.removeprefix("data:"))["event"]["eventId"]


def test_nginx_waits_longer_than_a_poll_may_take() -> None:
    _, location = of(PAGE, "nginx")
    [seconds] = re.findall(r"proxy_read_timeout (\d+)s;", location)
    [longest] = [limit.le for limit in EventsQuery.model_fields["wait"].metadata if hasattr(limit, "le")]
    assert int(seconds) >= longest + 15
