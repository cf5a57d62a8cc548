"""`kind: Forwarder`: the forwarders of a bundle, and each mistake at its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from oauthbroker.config import load, resolve
from oauthbroker.config.problems.problems import ConfigInvalidError
from oauthbroker.core.secret import Secret
from oauthbroker.model.forwarders import Forwarder, Nats, Webhook
from tests.unit.config.bundles import BROKER, CANARY, HEAD, HOOK, edited, problems_in, unmarked, write

WHSEC = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
STREAM = (
    HEAD
    + """kind: Forwarder
metadata: {name: stream}
spec:
  agents: [reader]
  networks: [10.0.0.0/8]
  nats:
    servers: ["tls://10.0.0.7:4222", "tls://nats.example:4222"]
    subject: agents.events
    user: broker
    password: {valueFrom: {env: NATS_PASSWORD}}
"""
)
AGENT = HEAD + "kind: Agent\nmetadata: {name: planner}\nspec: {modelRef: Model/large, systemPrompt: x}\n"


@dataclass(frozen=True)
class Refusal:
    """`text` is changed by `changes`; one of them carries the mark of the place."""

    claim: str
    text: str
    changes: tuple[tuple[str, str], ...]
    path: str
    what: str


def hook(claim: str, path: str, what: str, *changes: tuple[str, str]) -> Refusal:
    return Refusal(claim, HOOK, changes, path, what)


def stream(claim: str, path: str, what: str, *changes: tuple[str, str]) -> Refusal:
    return Refusal(claim, STREAM, changes, path, what)


URL, SERVER = "https://runtime.example/events", '"tls://10.0.0.7:4222"'
SECOND = "{valueFrom: {secretRef: {ref: Secret/hook, key: next}}}"
# fmt: off
REFUSALS = [
    hook("no agents", "spec.agents", "missing", ("  agents: [planner, writer]\n", ""), ("spec:", "@@spec:")),
    hook("an empty agent", "spec.agents[1]", "an empty name", ("writer", "@@' '")),
    hook("the same agent twice", "spec.agents[1]", "taken elsewhere", ("writer", "@@planner")),
    hook("both", "spec", "exactly one of webhook and nats", ("  webhook:", "  nats: {subject: a}\n  webhook:"), ("spec:\n  agents", "spec:\n  @@agents")),
    hook("a misspelt webhook", "spec.webhok", "the nearest known name is webhook", ("  webhook:", "  @@webhok:")),
    hook("no url", "spec.webhook.url", "missing", (f"    url: {URL}\n", ""), ("  webhook:", "  @@webhook:")),
    hook("plain http", "spec.webhook.url", "http", (URL, "@@http://runtime.example/events")),
    hook("an address inside", "spec.webhook.url", "inside your own network", (URL, "@@https://10.0.0.9/events")),
    hook("a password in the url", "spec.webhook.url", "a user name in a URL", (URL, f"@@https://me:{CANARY}@runtime.example/")),
    hook("no secret", "spec.webhook.secrets", "missing", ("[{valueFrom: {env: HOOK_SECRET}}, " + SECOND + "]", "@@[]")),
    hook("a secret in YAML", "spec.webhook.secrets[0]", "plain text", ("[{valueFrom: {env: HOOK_SECRET}}, " + SECOND + "]", f"[@@{CANARY}]")),
    hook("three secrets", "spec.webhook.secrets", "too many items", (f"[{{valueFrom: {{env: HOOK_SECRET}}}}, {SECOND}]", f"@@[{SECOND}, {SECOND}, {SECOND}]")),
    hook("a word that is no network", "spec.networks[0]", "not an address or network", ("  webhook:", f"  networks: [@@{CANARY}]\n  webhook:")),
    stream("no server", "spec.nats.servers", "missing", ('["tls://10.0.0.7:4222", "tls://nats.example:4222"]', "@@[]")),
    stream("a server without TLS", "spec.nats.servers[0]", "without TLS", (SERVER, '@@"nats://10.0.0.7:4222"')),
    stream("a server of http", "spec.nats.servers[0]", "not the address of a NATS server", (SERVER, '@@"https://10.0.0.7"')),
    stream("a server with a password", "spec.nats.servers[0]", "not the address of a NATS server", (SERVER, f'@@"tls://a:{CANARY}@10.0.0.7"')),
    stream("a server with a path", "spec.nats.servers[0]", "not the address of a NATS server", (SERVER, '@@"tls://10.0.0.7/x"')),
    stream("a server inside", "spec.nats.servers[0]", "inside your own network", ("[10.0.0.0/8]", "[10.9.0.0/16]"), (SERVER, "@@" + SERVER)),
    stream("no subject", "spec.nats.subject", "missing", ("    subject: agents.events\n", ""), ("  nats:", "  @@nats:")),
    stream("a subject with a wildcard", "spec.nats.subject", "not a subject", ("agents.events", '@@"agents.>"')),
    stream("a subject of the system", "spec.nats.subject", "not a subject", ("agents.events", "@@$JS.API")),
    stream("a user without a password", "spec.nats.password", "missing", ("    password: {valueFrom: {env: NATS_PASSWORD}}\n", ""), ("  nats:", "  @@nats:")),
    stream("a password without a user", "spec.nats.user", "missing", ("    user: broker\n", ""), ("  nats:", "  @@nats:")),
]
# fmt: on


@pytest.mark.parametrize("row", REFUSALS, ids=[row.claim for row in REFUSALS])
def test_a_mistake_is_a_problem_with_its_line_and_column(row: Refusal, tmp_path: Path):
    text, place = unmarked(edited(row.text, *row.changes))
    problems = problems_in(write(tmp_path / "config", broker=BROKER, forwarder=text))
    reported = [(each.path, (each.place.line, each.place.column)) for each in problems if row.what in each.what]
    reported += [(each.path, (each.place.line, each.place.column)) for each in problems if row.what in each.hint]
    assert (row.path, place) in reported, [str(each) for each in problems]
    assert all(CANARY not in str(each) for each in problems)


def test_an_agent_has_one_forwarder(tmp_path: Path):
    second, place = unmarked(edited(STREAM, ("[reader]", "[reader, @@writer]")))
    (problem,) = problems_in(write(tmp_path / "config", a=BROKER, b=HOOK, c=second))
    assert place == (problem.place.line, problem.place.column)
    assert "taken elsewhere" in problem.what
    assert "b.yaml:5:" in problem.what


def test_an_agent_of_the_tool_runtime_is_not_forwarded(tmp_path: Path):
    broker = BROKER + "  plugins: [tools]\n"
    bundle = write(tmp_path / "config", a=broker, b=HOOK, c=AGENT)
    problems = [(each.path, each.what) for each in problems_in(bundle)]
    assert any(path == "spec.agents[0]" and "taken elsewhere" in what for path, what in problems), problems


def test_forwarders_are_read_with_their_secrets(tmp_path: Path):
    loaded = load(write(tmp_path / "config", broker=BROKER, hook=HOOK, stream=STREAM))
    assert {"HOOK_SECRET", "NATS_PASSWORD"} == loaded.env_names
    env = {"HOOK_SECRET": WHSEC, "NATS_PASSWORD": "pw"}
    bundle = resolve(loaded, env, {("hook", "next"): Secret(WHSEC)})
    assert (
        Forwarder(
            name="hook",
            agents=("planner", "writer"),
            to=Webhook(url="https://runtime.example/events", secrets=(Secret(WHSEC), Secret(WHSEC))),
        ),
        Forwarder(
            name="stream",
            agents=("reader",),
            to=Nats(
                servers=("tls://10.0.0.7:4222", "tls://nats.example:4222"),
                subject="agents.events",
                user="broker",
                password=Secret("pw"),
            ),
            networks=("10.0.0.0/8",),
        ),
    ) == bundle.forwarders
    assert [True, True, False] == [bundle.forwards(each) for each in ("writer", "reader", "others")]


@pytest.mark.parametrize(
    "secret", ["hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_!", WHSEC.removeprefix("whsec_"), "whsec_" + "QUFB" * 30]
)
def test_a_secret_that_cannot_sign_is_a_problem_at_its_place(secret: str, tmp_path: Path):
    loaded = load(write(tmp_path / "config", broker=BROKER, hook=HOOK))
    with pytest.raises(ConfigInvalidError) as caught:
        resolve(loaded, {"HOOK_SECRET": secret}, {("hook", "next"): Secret(WHSEC)})
    (problem,) = caught.value.problems
    assert ("not a secret of Standard Webhooks", "spec.webhook.secrets[0]") == (problem.what, problem.path)
    assert (8, 15) == (problem.place.line, problem.place.column)
    assert secret not in str(problem).removeprefix("whsec_") or secret == "whsec_"
