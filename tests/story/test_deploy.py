"""The files of deploy/ fit their schemas, fit one another, and run: brokers are upgraded one by one under load.

No container engine and no cluster is needed: the commands of compose.yaml run as processes, with nginx in front and a
private PostgreSQL behind. What only an engine or a cluster does (images, volumes, networks, probes) is checked by schema.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
import yaml

from oauthbroker.cli import run
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.core.version import VERSION
from oauthbroker.testing import Account, IdentityProvider
from oauthbroker.testing.provider.types import Client
from oauthbroker.wiring import init_store, open_vault
from tests.faults.server_kills import _until_quiet, _wrong_tokens, wrong_events, wrong_refreshes
from tests.faults.server_load import Ledger, Load
from tests.faults.server_world import APPS, LIMITS, PEOPLE, Pair, Server, World
from tests.kit import installed, postgres
from tests.kit.cli import APP, MAIN, environment, free_port
from tests.kit.docs import page_text
from tests.kit.running_broker import Harness

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VECTORS = ROOT / "tests" / "vectors"
CLUSTER = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((CLUSTER / "kustomization.yaml").read_text("utf-8"))
KUBERNETES = json.loads((VECTORS / "kubernetes.json").read_text("utf-8"))
ENV = "OAUTHBROKER_STORE_URL"


def manifests() -> Iterator[Any]:
    for name in KUSTOMIZATION["resources"]:
        for document in yaml.safe_load_all((CLUSTER / name).read_text("utf-8")):
            yield pytest.param(document, id=f"{name} {document['kind']}")


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


def pods() -> dict[str, dict[str, Any]]:
    return {kind: manifest(kind)["spec"]["template"] for kind in ("Deployment", "Job")}


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    """The variables of a container; those of Secrets have a value of their form."""
    return {each["name"]: each.get("value", "postgresql://db/broker") for each in container["env"]}


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_a_pod_has_its_key_and_its_store_where_its_bundle_says(kind: str) -> None:
    pod = pods()[kind]
    (container,) = pod["spec"]["containers"]
    settings = load(CLUSTER / "config", environment_of(container)).settings
    places = {each["mountPath"] for each in container["volumeMounts"]}
    assert ENV == settings.store_url_env
    assert settings.key_file in places
    assert kind == "Job" or any(settings.store_root.startswith(f"{place}/") for place in places)
    assert {each["name"] for each in container["volumeMounts"]} <= {each["name"] for each in pod["spec"]["volumes"]}
    for one in (container, *pod["spec"].get("initContainers", ())):
        confined = one["securityContext"]
        assert (False, True, ["ALL"]) == (
            confined["allowPrivilegeEscalation"],
            confined["readOnlyRootFilesystem"],
            confined["capabilities"]["drop"],
        )


def test_the_manifests_fit_one_another_and_the_broker() -> None:
    pod = pods()["Deployment"]
    (broker,) = pod["spec"]["containers"]
    settings = load(CLUSTER / "config", environment_of(broker)).settings
    assert (
        settings.listen_port == broker["ports"][0]["containerPort"] == manifest("Service")["spec"]["ports"][0]["port"]
    )
    audit = pod["spec"]["initContainers"][0]["command"][-1]
    assert f"{settings.store_root}/data/audit.jsonl" == audit
    labels = pod["metadata"]["labels"].items()
    for kind in ("Service", "Deployment", "PodDisruptionBudget"):
        selector = manifest(kind)["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels, kind
    for each in pods().values():
        selector = manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
        assert selector.items() <= each["metadata"]["labels"].items()
    assert "Secret" not in {each.values[0]["kind"] for each in manifests()}


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
async def test_a_probe_asks_a_path_that_a_broker_answers(probe: str, harness: Harness) -> None:
    (broker,) = pods()["Deployment"]["spec"]["containers"]
    asked = broker[probe]["httpGet"]
    assert asked["port"] in {each["name"] for each in broker["ports"]}
    transport = httpx2.ASGITransport(app=harness.broker.asgi.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://10.1.2.3:8420") as pod:
        assert 200 == (await pod.get(asked["path"])).status_code


def test_every_secret_that_a_pod_reads_is_made_by_the_page_and_the_bundle_is_whole() -> None:
    page = page_text("docs/how-to/kubernetes.md")
    made = dict(re.findall(r"create secret generic (\S+)((?: \\\n|[^\n])*)", page))
    for pod in pods().values():
        (container,) = pod["spec"]["containers"]
        read = {
            it["valueFrom"]["secretKeyRef"]["name"]: it["valueFrom"]["secretKeyRef"]["key"]
            for it in container["env"]
            if "valueFrom" in it
        }
        read |= {it["secret"]["secretName"]: "broker.kek" for it in pod["spec"]["volumes"] if "secret" in it}
        assert all(key in made[name] for name, key in read.items())
    assert load(CLUSTER / "config").env_names == set(re.findall(r"GITHUB_\w+(?==)", made["oauthbroker-apps"]))
    (config,) = KUSTOMIZATION["configMapGenerator"]
    assert {str(each.relative_to(CLUSTER)) for each in (CLUSTER / "config").iterdir()} == set(config["files"])
    assert {config["name"]} == {
        each["configMap"]["name"] for pod in pods().values() for each in pod["spec"]["volumes"] if "configMap" in each
    }


def test_one_image_tag_stands_in_every_example() -> None:
    """A release writes its version into kustomization.yaml, compose.yaml, deploy/README.md, docs/how-to/kubernetes.md and
    production.md."""
    (image,) = KUSTOMIZATION["images"]
    pairs = [
        (each["image"])
        for pod in pods().values()
        for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    ]
    assert {image["name"]} == set(pairs), "without a tag: kustomization.yaml has it"
    wanted = f"oauthbroker:{VERSION}"
    assert wanted == f"{image['name']}:{image['newTag']}" == compose()["services"]["broker-1"]["image"]
    for page in ("deploy/README.md", "docs/how-to/production.md"):
        assert {wanted} == set(re.findall(r"oauthbroker:[0-9][\w.]*", (ROOT / page).read_text("utf-8"))), page


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_what_kubectl_builds_is_accepted_by_the_schemas() -> None:
    built = subprocess.run(
        ["kubectl", "kustomize", str(CLUSTER)], capture_output=True, text=True, check=True, timeout=60
    )
    documents = list(yaml.safe_load_all(built.stdout))
    assert {"ConfigMap", "Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service"} == {
        it["kind"] for it in documents
    }
    assert [] == [problem for each in documents for problem in problems_of(each)]


@pytest.mark.slow
def test_the_page_makes_the_key_that_the_job_and_the_brokers_read(
    postgres_server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the page up to kubectl, then those of the containers, each with its own variables."""
    page = (ROOT / "docs/how-to/kubernetes.md").read_text("utf-8")
    lines = re.findall(r"^(?:export OAUTHBROKER_|OAUTHBROKER_STORE_ROOT=).*$", page, re.MULTILINE)
    shutil.copytree(CLUSTER, tmp_path / "kubernetes")
    script = "set -eu\noauthbroker() { " + f'{sys.executable} -m oauthbroker "$@"; }}\n' + "\n".join(lines)
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=60, capture_output=True)
    postgres_server.empty_database("clustered")
    for kind, expected in (("Job", "Made the store's keyring"), ("Job", "The store is there")):
        (container,) = pods()[kind]["spec"]["containers"]
        for name in environment_of(container):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("OAUTHBROKER_STORE_ROOT", str(tmp_path / "state" / "store"))
        monkeypatch.setenv("OAUTHBROKER_KEYS_FILE", str(tmp_path / "broker.kek"))
        monkeypatch.setenv(ENV, postgres_server.url("clustered").reveal())
        monkeypatch.chdir(tmp_path / "kubernetes")
        said = io.StringIO()
        with redirect_stdout(said):
            assert 0 == run([str(each) for each in container["args"]])
        assert expected in said.getvalue()
    with redirect_stdout(io.StringIO()) as made:
        assert 0 == run(["api-keys", "create", "runtime", "--config", "config"])
    assert made.getvalue().strip()


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
    assert {ENV} == set(services["broker-1"]["environment"])
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
        settings = load(self.folder / "broker-1" / "config", {ENV: self.url}).settings
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
    postgres_server.empty_database("rolling")
    world = Composed(tmp_path, identity_provider, 1, url=postgres_server.url("rolling").reveal())
    await world.make()
    ledger = Ledger()
    assert [] == await rolled(world, ledger)
    assert ledger.granted
    assert 0 == ledger.answers[502] + ledger.answers[504]
