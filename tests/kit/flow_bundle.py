"""A bundle whose broker serves flow tools: an entity, a service, tools that are deployed, and the callers' tokens."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from oauthbroker.flowtools.cli.command_inputs import at_broker
from oauthbroker.flowtools.deployment.versions import FlowVersions
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.serving.service import FlowService
from oauthbroker.flowtools.specification.failures import Actor
from tests.kit.flow_versions import versions_in
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, COMMIT
from tests.unit.flowtools.serving.jwt_kit import AUDIENCE, ISSUER, key_set, token

LOG = {"name": "Log", "fields": {"text": {"type": "string", "required": True}}}
SERVICE: dict[str, Any] = {
    "entities": ["entities"],
    "applyChanges": True,
    "issuers": [{"issuer": ISSUER, "audience": AUDIENCE, "jwks": key_set("rsa")}],
    "apiKeys": {"runtime": {"roles": ["staff"]}},
    "services": {"nightly": {"roles": ["staff"]}},
}
STAFF = {"auth": {"allowedRoles": ["staff"]}}
NIGHTLY: dict[str, Any] = {"auth": {"allowedRoles": ["staff"], "runAs": "nightly"}}
INPUT = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}, "required": ["text"]}
OUTPUT = {"type": "object", "properties": {"text": {"type": "string"}}}


def note_tool(
    name: str, trigger: dict[str, Any], text: str = "input.text", *, before: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A tool that writes a line, after the nodes of `before`."""
    line = ("write", {"entity": "Log", "operation": "create", "fields": {"text": text}})
    nodes = {**(before or {}), "t": BEGIN, "u": line, "v": COMMIT}
    given = {"input": INPUT, "output": OUTPUT, "policies": None, "idempotencyKey": None, **STAFF, **more}
    return written(nodes, chain(*nodes), next(iter(nodes)), name=name, trigger=trigger, **given)


def bundle(folder: Path, **service: Any) -> None:
    """Write the entities and the FlowService beside the files of the broker."""
    (folder / "entities").mkdir(parents=True, exist_ok=True)
    (folder / "entities" / "log.json").write_text(json.dumps(LOG))
    document = {
        "apiVersion": "agents.example.io/v1alpha1",
        "kind": "FlowService",
        "metadata": {"name": "flows"},
        "spec": {**SERVICE, **service},
    }
    (folder / "flows.yaml").write_text(json.dumps(document))


def deploy(folder: Path, document: dict[str, Any], **more: Any) -> None:
    """Deploy a version without a broker."""
    deploy_to(versions_in(folder), document, **more)


def deploy_in_store(config: Path, document: dict[str, Any], **more: Any) -> None:
    """Deploy a version as a command does."""
    at_broker(config, lambda here: deploy_to(here.versions, document, **more))


def deploy_to(versions: FlowVersions, document: dict[str, Any], *, activate: bool = False, by: str = "Ada") -> None:
    from oauthbroker.flowtools.risk.assessment import assess
    from oauthbroker.flowtools.specification.spec import load_tool

    raw = json.dumps(document).encode()
    tool = load_tool(raw, "tool.json")
    versions.acknowledgements.record(tool, assess(tool), by=by)
    versions.deploy(raw, "tool.json", by=by)
    if activate:
        versions.activate(document["name"], document["version"], by=by)


def jwt(sub: str = "ada", roles: tuple[str, ...] = ("staff",), **more: Any) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": sub, "exp": time.time() + 600, "roles": list(roles)}
    return token({**claims, **more})


async def call(
    service: FlowService, reference: str, data: Any, actor: Actor | None, *, key: str | None = None
) -> RunResult:
    """Run a tool of a service to its end, as a request does."""
    return await service.work(lambda: service.runs.call(service.flow(reference), data, actor, key=key))
