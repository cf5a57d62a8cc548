"""The audit log of one run with a charge, an approval and a refund: whole, and with one line cut out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, INPUT, LOG, log

pytestmark = [pytest.mark.rule("000-contract-8"), pytest.mark.slow]
USES = ("--entity", "log.json", "--sandbox")
ASK = {
    "name": "ask",
    "version": 1,
    "description": "A person decides on large payments",
    "type": "custom",
    "condition": "amount > 5",
    "action": "escalate",
}
NODES: dict[str, Any] = {
    "a": BEGIN,
    "b": log("one"),
    "c": COMMIT,
    "w": ("timeout", {"seconds": 5}),
    "p": ("payment", {"provider": "stripe", "fields": {"amount": "input.n"}}),
    "k": ("policyCheck", {"policy": "ask"}),
    "f": ("assert", {"expression": "input.n > 100.0", "message": "too little"}),
}
STORY = [
    ("FlowCalled", None, None),
    ("EffectSent", "p", "charge"),
    ("RunStopped", None, "escalated"),
    ("RunDecided", None, "approved"),
    ("EffectSent", "p", "refund"),
    ("RunStopped", None, "failed"),
]


@pytest.fixture
def told(desk: Desk, idp: IdentityProvider) -> Desk:
    """Ann's run charges a card, a person approves it, and then it fails."""
    desk.ready_to_serve(idp)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n")
    document = written(NODES, chain(*NODES), "a", input=INPUT, policies=["paymentRollback"], output={"type": "object"})
    for name, value in (("tool", document), ("log", LOG), ("ask", ASK)):
        (desk.folder / f"{name}.json").write_text(json.dumps(value), "utf-8")
    desk.type("flow", "acknowledge", "tool.json", "--by", "ada", "--policy", "ask.json")
    done = desk.type("flow", "deploy", "tool.json", "--policy", "ask.json", *USES)
    assert 0 == done.code, done.out + done.err
    given = json.dumps({"id": "canary", "n": 9, "amount": 9})
    words = ("flow", "run", "tool", *USES, "--apply", "--as", "ann", "--input", "-", "--json")
    stopped = json.loads(desk.type(*words, stdin=given).out)
    assert "escalated" == stopped["state"], stopped
    assert 0 == desk.type("flow", "approve", stopped["run"], "--by", "Ada").code
    ended = json.loads(desk.type("flow", "run", "tool", *USES, "--resume", stopped["run"], "--json").out)
    assert ("failed", ["p: the charge was refunded"]) == (ended["state"], ended["notes"][-1:])
    return desk


def log_of(desk: Desk) -> Path:
    return desk.folder / "store" / "data" / "audit.jsonl"


def entries(desk: Desk) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(desk.type("audit", "tail", "-n", "1000", "--json").out)
    return [each for each in lines if each["type"].startswith("flowtools.") and "run" in each]


def test_the_log_tells_the_run_and_verifies(told: Desk) -> None:
    found = entries(told)
    assert "None" not in told.type("audit", "tail").out, "a payment has no app"
    story = [
        (
            each["type"].removeprefix("flowtools."),
            each.get("node"),
            each.get("operation") or each.get("state") or each.get("decision"),
        )
        for each in found
    ]
    assert STORY == story
    assert 1 == len({each["run"] for each in found})
    assert all(each["genuine"] for each in found)
    names = {each: told.type("audit", "name", each).out.strip() for each in ("ann", "Ada")}
    assert (names["ann"], names["Ada"]) == (found[0]["actor"], found[3]["by"])
    done = told.type("audit", "verify")
    assert (0, True) == (done.code, done.out.startswith("Sound: "))
    raw = log_of(told).read_text("utf-8")
    assert [] == [text for text in ('"ann"', '"Ada"', "canary", "too little") if text in raw]


@pytest.mark.parametrize("which", ["charge", "approved", "refund"])
def test_a_line_that_was_cut_out_is_reported(told: Desk, which: str) -> None:
    lines = log_of(told).read_text("utf-8").splitlines(keepends=True)
    (cut,) = [at for at, line in enumerate(lines) if f'"{which}"' in line]
    log_of(told).write_text("".join(lines[:cut] + lines[cut + 1 :]), "utf-8")
    done = told.type("audit", "verify")
    assert 1 == done.code
    row = done.out.splitlines()[1]
    assert ["audit.jsonl", str(cut + 1), "missing"] == row.split()[:3]
    assert row.endswith(f"lines that were written before this one are missing: number {cut + 1}"), row
    first = json.loads(told.type("audit", "verify", "--json").out)["breaks"][0]
    assert {"file": "audit.jsonl", "line": cut + 1, "kind": "missing", "missing": [cut + 1, cut + 1]} == first


def test_the_tail_shows_which_specification_was_deployed(told: Desk) -> None:
    digest = hashlib.sha256((told.folder / "tool.json").read_bytes()).hexdigest()
    (deployed,) = [line for line in told.type("audit", "tail").out.splitlines() if "VersionDeployed" in line]
    assert f"digest={digest[:12]}" in deployed.split()


def test_a_version_that_was_never_deployed_is_named_first(told: Desk) -> None:
    refused = told.type("flow", "activate", "tool", "7", "--by", "ada")
    assert (2, "requestInvalid: tool@7 is not deployed; deployed versions: 1\n") == (refused.code, refused.err)
