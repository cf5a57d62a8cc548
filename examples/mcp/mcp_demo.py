"""`mcp_demo.py`: an MCP host, an MCP server and a provider. It prints two links: to the server, and for its tool."""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from oauthbroker.testing import Browser, Client, IdentityProvider, connect_through

HERE = Path(__file__).parent
LINK = re.compile(r"http\S+/connect/\S+")
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ../data}}
  keys: {{file: ../keys/broker.kek}}
  weaken: [plainHttpProvider]  # the provider of the example has no https; loopback only
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
"""
OF_HOST = """\
metadata: {{name: mail-server}}
spec:
  title: the mail server
  provider: mcp
  flow: authorizationCode
  subjectMode: user
  mcp: {{url: "http://127.0.0.1:{server}/mcp"}}
  scopes: [read]
  owner: {{binding: localOperator}}
"""
OF_SERVER = """\
metadata: {{name: mail}}
spec:
  title: Demo Mail
  provider: oidc
  flow: authorizationCode
  subjectMode: user
  client: {{clientId: mail, clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/mail, key: client_secret}}}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [read]
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
  api: {{hosts: ["{issuer}"], methods: [GET]}}
"""


def configure(folder: Path, text: str) -> Path:
    """Write a configuration as an operator does, and make the key and the store. Return its folder."""
    config = folder / "config"
    config.mkdir(parents=True)
    (config / "broker.yaml").write_text(text, "utf-8")
    oauthbroker(config, "init")
    return config


def oauthbroker(config: Path, *words: str, given: str = "") -> None:
    command = [sys.executable, "-m", "oauthbroker", *words, "--config", str(config)]
    subprocess.run(command, input=given, text=True, check=True, stdout=subprocess.DEVNULL)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def started(program: str, *words: str) -> asyncio.subprocess.Process:
    """Start a program. Its log lies beside its configuration."""
    line = [sys.executable, str(HERE / program), *words]
    with (Path(words[0]).parent / "log").open("w") as log:
        return await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE, stderr=log)


async def until_it_listens(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def play(host: asyncio.subprocess.Process, provider: IdentityProvider, *, auto: bool) -> None:
    """Pass on what the host prints, and open its links with `auto`."""
    browser = Browser()
    while host.stdout is not None and (line := (await host.stdout.readline()).decode().rstrip()):
        print(line, flush=True)
        if auto and (link := LINK.search(line)):
            await connect_through(browser, provider, link[0], "alice")


async def main(*, auto: bool) -> None:
    ports = {"server": free_port(), "host": free_port()}
    with TemporaryDirectory(prefix="mcp-") as name, IdentityProvider() as provider:
        folder = Path(name)
        provider.takes_clients = True
        of_server = configure(
            folder / "server", BROKER.format(port=ports["server"]) + OF_SERVER.format(issuer=provider.issuer)
        )
        callback = f"http://127.0.0.1:{ports['server']}/oauth/callback/mail"
        client = provider.register(Client("mail", redirect_uris=(callback,)))
        oauthbroker(of_server, "secrets", "set", "mail", "client_secret", given=client.reveal_secret())
        of_host = configure(folder / "host", BROKER.format(port=ports["host"]) + OF_HOST.format(server=ports["server"]))
        server = await started("mail_server.py", str(of_server), provider.issuer, provider.url("/api/messages"))
        try:
            await until_it_listens(ports["server"])
            host = await started("host.py", str(of_host), "inbox")
            try:
                await play(host, provider, auto=auto)
                if await host.wait():
                    raise SystemExit((of_host.parent / "log").read_text("utf-8").rstrip())
            finally:
                if host.returncode is None:
                    host.kill()
                    await host.wait()
        finally:
            server.terminate()
            await server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--auto", action="store_true", help="Play the user, too.")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(auto=given.auto))
