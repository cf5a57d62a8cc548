"""The files of deploy/ fit their schemas, fit one another, and run: brokers are upgraded one by one under load.

No container engine and no cluster is needed: the commands of compose.yaml run as processes, with nginx in front and a
private PostgreSQL behind. What only an engine or a cluster does (images, volumes, networks, probes) is checked by schema.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
import yaml

from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.testing import Account, IdentityProvider
from oauthbroker.testing.provider.types import Client
from oauthbroker.wiring import init_store, open_vault
from tests.faults.server_kills import _until_quiet, _wrong_tokens, wrong_events, wrong_refreshes
from tests.faults.server_load import Ledger, Load
from tests.faults.server_world import APPS, LIMITS, PEOPLE, Pair, Server, World
from tests.kit import installed, postgres
from tests.kit.cli import APP, MAIN, environment, free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VECTORS = ROOT / "tests" / "vectors"
KUBERNETES = json.loads((VECTORS / "kubernetes.json").read_text("utf-8"))
ENV = "OAUTHBROKER_DATABASE_URL"


def manifests() -> Iterator[Any]:
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            yield pytest.param(document, id=f"{path.name} {document['kind']}")


def manifest(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each.values[0] for each in manifests() if each.values[0]["kind"] == kind)
    return found


def problems_of(document: dict[str, Any]) -> list[str]:
    """All faults by the definitions of Kubernetes; an unknown member is one, too."""
    schema = {"$ref": KUBERNETES["kinds"][document["kind"]], "definitions": KUBERNETES["definitions"]}
    return [each.message for each in jsonschema_rs.validator_for(schema).iter_errors(document)]


@pytest.mark.parametrize("document", [*manifests()])
def test_a_manifest_fits_the_schema_of_kubernetes(document: dict[str, Any]) -> None:
    assert [] == problems_of(document)


def test_the_schema_finds_a_wrong_name_and_a_wrong_type() -> None:
    wrong = manifest("Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    wrong["spec"]["replicas"] = "two"
    assert 2 == len(problems_of(wrong))


def test_the_manifests_fit_one_another_and_the_broker(tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(manifest("ConfigMap")["data"]["broker.yaml"], "utf-8")
    settings = load(tmp_path).settings
    pod = manifest("Deployment")["spec"]["template"]
    (broker,) = pod["spec"]["containers"]
    assert (
        settings.listen_port == broker["ports"][0]["containerPort"] == manifest("Service")["spec"]["ports"][0]["port"]
    )
    assert [settings.store_url_env] == [each["name"] for each in broker["env"]]
    places = {each["mountPath"] for each in broker["volumeMounts"]}
    assert settings.key_file in places
    assert any(settings.store_root.startswith(f"{place}/") for place in places)
    audit = pod["spec"]["initContainers"][0]["command"][-1]
    assert f"{settings.store_root}/data/audit.jsonl" == audit
    assert {"/healthz", "/readyz"} == {
        broker[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    labels = pod["metadata"]["labels"].items()
    for kind in ("Service", "Deployment", "PodDisruptionBudget"):
        selector = manifest(kind)["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels, kind
    assert manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels
    for one in (broker, *pod["spec"]["initContainers"], *manifest("Job")["spec"]["template"]["spec"]["containers"]):
        confined = one["securityContext"]
        assert (False, True, ["ALL"]) == (
            confined["allowPrivilegeEscalation"],
            confined["readOnlyRootFilesystem"],
            confined["capabilities"]["drop"],
        )
    assert "Secret" not in {each.values[0]["kind"] for each in manifests()}


def compose() -> dict[str, Any]:
    """compose.yaml, with its variables filled in as the command does."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DEPLOY / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:\?[^}]*\}", "password", text))
    return found


def test_the_compose_file_fits_its_schema() -> None:
    document = compose()
    document.pop("name")  # the schema is older than this member
    schema = json.loads((VECTORS / "compose.json").read_text("utf-8"))
    assert [] == [each.message for each in jsonschema_rs.validator_for(schema).iter_errors(document)]
    services = document["services"]
    assert {"broker-1", "broker-2", "postgres", "proxy"} == set(services)
    assert {ENV} == set(services["broker-1"]["environment"]) == {load(DEPLOY / "config").settings.store_url_env}
    for name in ("broker-1", "broker-2"):
        assert f"server {name}:{load(DEPLOY / 'config').settings.listen_port} " in (DEPLOY / "nginx.conf").read_text()
        used = {volume.partition(":")[0] for volume in services[name]["volumes"]} - {"./config"}
        assert used <= set(document["volumes"])


@dataclass
class Composed(World):
    """The services of compose.yaml as processes. `port` is the proxy's."""

    url: str = field(default="", repr=False)
    ports: dict[str, int] = field(default_factory=lambda: {"broker-1": free_port(), "broker-2": free_port()})

    async def make(self) -> None:
        for name in self.ports:
            self._configure(name)
        uris = tuple(f"{self.base}/oauth/callback/{Pair(number).app}" for number in range(APPS))
        secret = self.idp.canaries.mint("client secret")
        self.idp.register(Client("client-mail", Secret(secret.reveal()), redirect_uris=uris))
        for number in range(PEOPLE):
            self.idp.add_account(Account(f"person{number}", f"P{number}"))
        settings = load(self.folder / "broker-1" / "config").settings
        init_store(settings, {ENV: self.url}, SystemClock())
        async with open_vault(settings, env={ENV: self.url}) as vault:
            await vault.secrets.put("mail", "client_secret", Secret(secret.reveal()))
            _, key = await vault.api_keys.create("runtime", ["runtime", "operator"])
            self.key = key.reveal()

    def _configure(self, name: str) -> None:
        """The bundle of deploy/, where only addresses and places are changed."""
        folder = self.folder / name / "config"
        folder.mkdir(parents=True)
        text = (DEPLOY / "config" / "broker.yaml").read_text("utf-8")
        for old, new in {
            "http://127.0.0.1:8420": self.base,
            "host: 0.0.0.0, port: 8420": f"host: 127.0.0.1, port: {self.ports[name]}",
            "/srv/oauthbroker/store": str(self.folder / name / "store"),
            "/srv/oauthbroker/keys": str(self.folder / "keys"),
        }.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "broker.yaml").write_text(f"{text}  weaken: [plainHttpProvider]\n{LIMITS}", "utf-8")
        for number in range(APPS):
            app = Pair(number).app
            given = APP.format(issuer=self.idp.issuer).replace("name: mail", f"name: {app}")
            (folder / f"{app}.yaml").write_text(given, "utf-8")

    async def start_one(self, name: str) -> Server:
        """Run the command of a service, until it is ready for the proxy."""
        process = self._spawn_one(name)
        await self.until_up(self.ports[name], process)
        return Server(process)

    def _spawn_one(self, name: str) -> subprocess.Popen[bytes]:
        service = compose()["services"][name]
        assert set(service["environment"]) == {ENV}
        with self.log.open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, "-c", MAIN, *service["command"]], env=environment(**{ENV: self.url}),
                cwd=self.folder / name, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip

    def start_proxy(self) -> subprocess.Popen[bytes]:
        """Run nginx with the configuration of deploy/, where only addresses are changed."""
        text = (DEPLOY / "nginx.conf").read_text("utf-8").replace("listen 8420", f"listen 127.0.0.1:{self.port}")
        for name, port in self.ports.items():
            text = text.replace(f"{name}:8420", f"127.0.0.1:{port}")
        folder = self.folder / "proxy"
        folder.mkdir()
        if os.geteuid() == 0:
            text = "user root;\n" + text
        places = "".join(
            f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(text.replace("http {\n", f"http {{\n{places}"), "utf-8")
        words = ["-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
        return subprocess.Popen(["nginx", *words, "-g", f"daemon off; pid {folder}/pid;"], stdin=subprocess.DEVNULL)

    async def until_up(self, port: int, process: subprocess.Popen[bytes]) -> None:
        async with asyncio.timeout(90):
            while True:
                assert process.poll() is None, self.log.read_text("utf-8")[-2000:] if self.log.exists() else ""
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    with closing(writer):
                        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                        if (await reader.read()).startswith(b"HTTP/1.1 200"):
                            return
                await asyncio.sleep(0.05)


@pytest.mark.case("92")
def test_the_proxy_quotes_no_request_in_its_log(tmp_path: Path, identity_provider: IdentityProvider) -> None:
    """Neither for an error (no broker answers) nor for a critical one (a body cannot be written to the disk)."""
    installed.demand([] if shutil.which("nginx") else ["nginx (package nginx-light)"])
    world = Composed(tmp_path, identity_provider, 1)
    proxy, link = world.start_proxy(), f"{world.base}/connect/a-ticket"
    try:
        with httpx2.Client(transport=httpx2.HTTPTransport(retries=9), trust_env=False) as client:
            assert 503 == client.get(link).status_code
            shutil.rmtree(tmp_path / "proxy" / "client_body")
            assert 500 == client.post(link, content=bytes(1 << 16)).status_code
    finally:
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(30)
    assert "a-ticket" not in (tmp_path / "proxy" / "error.log").read_text("utf-8")


async def rolled(world: Composed, ledger: Ledger) -> list[str]:
    """Replace each broker once under load; return the problems that are found afterwards."""
    load, servers = Load(world, ledger, random.Random(1)), dict[str, Server]()
    proxy = world.start_proxy()
    try:
        for name in world.ports:
            servers[name] = await world.start_one(name)
        await world.until_up(world.port, proxy)
        async with load.consuming() as consumer:
            async with load.running(people=2, tools=3):
                for name in world.ports:
                    await _more_granted(ledger, 2)
                    assert 0 == await servers[name].end()
                    await _more_granted(ledger, 1)  # the other one serves
                    servers[name] = await world.start_one(name)
                await _more_granted(ledger, 2)
            await _until_quiet(ledger, consumer)
        wrong = await _wrong_tokens(world, ledger)
        assert [0, 0] == [await server.end() for server in servers.values()]
    finally:
        for server in servers.values():
            server.bury()
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(30)
    wrong += wrong_events(ledger) + wrong_refreshes(world, ledger)
    return wrong + [await each.reported(world) for each in ledger.unforeseen]


async def _more_granted(ledger: Ledger, count: int) -> None:
    wanted = len(ledger.granted) + count
    async with asyncio.timeout(120):
        while len(ledger.granted) < wanted:
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_brokers_are_replaced_one_by_one_under_load_and_no_event_is_lost(
    postgres_server: postgres.Server, tmp_path: Path, identity_provider: IdentityProvider
) -> None:
    installed.demand([] if shutil.which("nginx") else ["nginx (package nginx-light)"])
    postgres_server.run("create database rolling")
    world = Composed(tmp_path, identity_provider, 1, url=postgres_server.url("rolling").reveal())
    await world.make()
    ledger = Ledger()
    assert [] == await rolled(world, ledger)
    assert ledger.granted
    assert 0 == ledger.answers[502] + ledger.answers[504]
