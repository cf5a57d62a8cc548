"""`/v1/proxy` over loopback, beside plain reverse proxies, in the same run: nginx, and one of Starlette and httpx2.

All forward the same GET over kept connections to an API in a process of its own. The plain ones add a fixed token. They
know no caller and no allow-list, write no audit log and mask nothing. The API alone is the first row. nginx has one
worker, and no row of CPU time, because it is a process of its own.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from bench.bench_api import HOST, KINDS_OF_FIGURES, TURN, Row, behind_our_listener, behind_uvicorn, measure, nowhere
from bench.bench_injection import SERVE
from bench.bench_token_call import SUBJECT, app, grant
from bench.figures import parser, show, show_failure
from bench.installation import free_port
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.serving.event_loop import run_serving
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running

OURS = "/v1/proxy"
START_SECONDS = 30.0
NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream api {{ server 127.0.0.1:{api}; keepalive 32; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port};
        location {prefix}/ {{
            proxy_pass http://api/; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Authorization "Bearer {token}";
        }}
    }}
}}
"""


@asynccontextmanager
async def plain_proxy(prefix: str, port: int, token: str) -> AsyncIterator[str]:
    """Serve the least reverse proxy that streams."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:

        async def forward(request: Request) -> StreamingResponse:
            headers = {"Authorization": f"Bearer {token}"}
            asked = client.build_request(request.method, f"/{request.path_params['path']}", headers=headers)
            answer = await client.send(asked, stream=True)
            named = {name: answer.headers[name] for name in ("content-type", "content-length")}
            return StreamingResponse(
                answer.aiter_raw(), answer.status_code, named, background=BackgroundTask(answer.aclose)
            )

        async with behind_uvicorn(Starlette(routes=[Route(f"{prefix}/{{path:path}}", forward)]), None) as place:
            yield place


@contextmanager
def nginx(program: str, folder: Path, prefix: str, api: int, token: str) -> Iterator[str]:
    """Run nginx with one worker until the end of the block."""
    port = free_port()
    (folder / "nginx.conf").write_text(
        NGINX.format(folder=folder, api=api, port=port, prefix=prefix, token=token), "utf-8"
    )
    with subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as process:
        try:
            yield str(port)
        finally:
            process.terminate()


async def answers(place: str) -> None:
    """Return when something listens there. Raises TimeoutError."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", int(place))
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def show_rows(rows: list[Row], way: str) -> None:
    """Print ours beside each of the others. There is no CPU time of another process."""
    *others, ours = rows
    for row in rows:
        for kind, unit, of in KINDS_OF_FIGURES:
            elsewhere = {"nginx", "the API alone"} if kind == ": CPU" else set[str]()
            beside = {f"{each.name}, {way}{kind}": of(each) for each in others if each.name not in elsewhere}
            if row.name not in elsewhere:
                show(f"{row.name}, {way}{kind}", of(row), unit, beside if row is ours else {})


async def main(port: int, *, quick: bool) -> None:
    seconds, rounds = (0.7, 3) if quick else (2.0, 5)
    api = ApiAccess((ApiHost("127.0.0.1", port, "http"),))
    prefix = f"{OURS}/mail/127.0.0.1:{port}"
    held = grant(SUBJECT)
    assert held.token is not None
    fixed = held.token.access_token.reveal()
    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        await Repository(store).save_grant(held, expect=0)
        limits = Limits(requests_per_minute=10**9)
        settings = Settings(
            f"http://{HOST}", limits=limits, store_root=str(root / "store"), weaken=frozenset({"plainHttpProvider"})
        )
        bundle = Bundle(settings, {"mail": replace(app(), api=api)})
        log = json_log(stack.enter_context(nowhere()), SystemClock())
        opened = open_running(bundle, env={}, clock=SystemClock(), store=store, log=log, background=False)
        broker = (await stack.enter_async_context(opened)).broker
        token = (await broker.turns.begin(TURN)).token.reveal()
        rows = [
            Row("the API alone", str(port)),
            Row("Starlette and httpx2", await stack.enter_async_context(plain_proxy(prefix, port, fixed))),
            Row(OURS, await stack.enter_async_context(behind_our_listener(broker.asgi.app, None))),
        ]
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            show_failure("nginx", "it is not installed")
        else:
            place = stack.enter_context(nginx(program, root, prefix, port, fixed))
            await answers(place)
            rows.insert(1, Row("nginx", place))
        head = f"Host: {HOST}\r\nAuthorization: Bearer {token}\r\n\r\n"
        request = f"GET {prefix}/v1/messages HTTP/1.1\r\n{head}".encode()
        for connections in (1, 16):
            asked = [Row(row.name, row.place) for row in rows]
            for _ in range(rounds):
                for row in asked:
                    await measure(row, request, connections, seconds)
            show_rows(asked, f"{connections} over TCP")


if __name__ == "__main__":
    given = parser().parse_args()
    command = [sys.executable, "-m", "bench.bench_injection", SERVE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdout is not None
        run_serving(main(int(provider.stdout.readline()), quick=given.quick))
        provider.kill()
