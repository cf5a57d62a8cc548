"""Versions are immutable, several are deployed at once, and a deployment that is killed leaves all of a version or none."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.deployment.versions import FlowVersions
from oauthbroker.flowtools.risk import write_once_files as kept_files
from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.specification.policies import load_policy
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.flowtools.specification.spec import load_tool
from oauthbroker.testing import TestClock
from tests.unit.flowtools.kit import example, written

POLICY = {"name": "p", "version": 1, "description": "", "type": "custom", "condition": "rows > 1", "action": "warn"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHANGING = ("open", "write", "fsync", "link", "unlink", "mkdir")
MOST_STEPS = 80  # more than a deployment makes; the sweep ends by itself
PAYMENT = example("processPayment.json")


class Killed(BaseException):
    """The process is gone."""


def green(version: int = 1, description: str = "A tool", **more: Any) -> bytes:
    data = written({"a": "transform"}, [], version=version, description=description, **more)
    return json.dumps(data).encode()


def opened(folder: Path) -> FlowVersions:
    return FlowVersions(folder, TestClock(NOON))


def deploy(folder: Path, raw: bytes, **more: Any) -> FlowVersions:
    kept = opened(folder)
    kept.deploy(raw, "tool.json", by="alice", **more)
    return kept


@pytest.mark.rule("001-deploy")
def test_several_versions_are_deployed_and_the_first_one_serves_until_another_is_activated(tmp_path):
    for version in (1, 2, 10):
        kept = deploy(tmp_path, green(version))
    assert ([1, 2, 10], 1, ["tool"]) == (kept.numbers("tool"), kept.serving("tool"), kept.names())
    for version in (10, 2, 2, 1):  # forward and back
        assert version == kept.activate("tool", version, by="bob").tool.version
        assert version == opened(tmp_path).deployed("tool").tool.version
    assert [10, 2] == [kept.deployed(f"tool@{version}").tool.version for version in (10, 2)]


def test_a_deployed_version_has_the_specification_and_the_policies_that_it_names(tmp_path):
    raw = green(policies=["p"])
    own = [load_policy(json.dumps({**POLICY, "name": name}).encode(), "p.json") for name in ("p", "unused")]
    flow = deploy(tmp_path, raw, policies=own).deployed("tool@1")
    assert (raw.decode(), "alice") == (stored(tmp_path)["specification"], flow.by)
    assert (("p",), "green") == (tuple(policy.name for policy in flow.policies), flow.assessment.risk)
    assert own[0] == flow.policies[0]


def test_a_yaml_file_is_deployed_as_yaml(tmp_path):
    text = "name: tool\nversion: 1\ndescription: ''\ntrigger: {type: http}\ninput: {}\noutput: {}\n"
    text += "flow: {startNode: a, nodes: {a: {type: transform, config: {expression: '1'}}}, edges: []}\n"
    opened(tmp_path).deploy(text.encode(), "tool.yaml", by="alice")
    assert "tool" == opened(tmp_path).deployed("tool").tool.name


@pytest.mark.rule("001-version", "000-top-version")
def test_the_same_bytes_again_change_nothing_and_other_bytes_are_refused(tmp_path):
    deploy(tmp_path, green())
    before = tree(tmp_path)
    deploy(tmp_path, green())
    assert before == tree(tmp_path)
    with pytest.raises(FlowRefused, match=r"This version exists with other bytes\. Write version 2"):
        deploy(tmp_path, green(description="Other"))
    assert before == tree(tmp_path)


def test_the_same_version_with_another_policy_is_refused(tmp_path):
    first, other = (
        load_policy(json.dumps({**POLICY, "condition": f"rows > {rows}"}).encode(), "p.json") for rows in (1, 2)
    )
    deploy(tmp_path, green(policies=["p"]), policies=[first])
    with pytest.raises(FlowRefused, match=r"exists with other policies\. Write version 2"):
        deploy(tmp_path, green(policies=["p"]), policies=[other])


def test_deploying_again_does_not_undo_a_step_back(tmp_path):
    kept = deploy(tmp_path, green())
    deploy(tmp_path, green(2))
    kept.activate("tool", 2, by="bob")
    kept.activate("tool", 1, by="bob")
    deploy(tmp_path, green(2))
    assert 1 == kept.serving("tool")


@pytest.mark.rule("001-withdraw")
def test_a_version_is_withdrawn_once_with_a_record_and_serves_never_again(tmp_path):
    deploy(tmp_path, green())
    kept = deploy(tmp_path, green(2))
    kept.activate("tool", 2, by="bob")
    record = kept.withdraw("tool", 1, by="bob", why="no roles")
    assert ("bob", "no roles", NOON.isoformat()) == (record["by"], record["why"], record["at"])
    before = tree(tmp_path)
    assert record == opened(tmp_path).withdraw("tool", 1, by="eve", why="other")
    deploy(tmp_path, green())
    assert before == tree(tmp_path)
    assert [record, None] == [opened(tmp_path).deployed(f"tool@{version}").withdrawn for version in (1, 2)]
    with pytest.raises(BrokerError, match="tool@1 is permanently withdrawn; deploy the specification as a new version"):
        kept.activate("tool", 1, by="bob")


@pytest.mark.rule("001-withdraw")
def test_the_version_that_serves_is_withdrawn_on_demand_alone_and_then_none_serves(tmp_path):
    kept = deploy(tmp_path, green(trigger={"type": "http", "path": "/here"}))
    with pytest.raises(BrokerError, match="tool@1 serves; activate another version, or write --serving"):
        kept.withdraw("tool", 1, by="bob")
    assert kept.withdrawn("tool", 1) is None
    kept.withdraw("tool", 1, by="bob", serving=True)
    assert kept.deployed("tool").withdrawn
    deploy(tmp_path, green(name="other", trigger={"type": "http", "path": "/here"}))  # its path is free
    deploy(tmp_path, green(2))
    assert 1 == kept.serving("tool")
    assert kept.activate("tool", 2, by="bob").withdrawn is None


def test_a_version_that_is_not_there_cannot_be_withdrawn_and_one_that_is_damaged_can(tmp_path):
    deploy(tmp_path, green())
    kept = deploy(tmp_path, green(2))
    for name, version in (("tool", 3), ("other", 1)):
        with pytest.raises(BrokerError, match="is not deployed"):
            kept.withdraw(name, version, by="bob")
    for why in ("a\nb", "x" * 301):
        with pytest.raises(BrokerError, match="a reason has at most 300 printable characters"):
            kept.withdraw("tool", 2, by="bob", why=why)
    (tmp_path / "tool/versions/2.json").write_text("", "utf-8")
    assert "bob" == kept.withdraw("tool", 2, by="bob")["by"]


@pytest.mark.parametrize("reference", ["tool@2", "other", "other@1", "tool@0", "tool@", "../tool", "", "tool@1@1"])
def test_a_version_that_is_not_deployed_is_refused(tmp_path, reference):
    deploy(tmp_path, green())
    with pytest.raises(BrokerError) as refused:
        opened(tmp_path).deployed(reference)
    assert Code.REQUEST_INVALID == refused.value.code


@pytest.mark.rule("001-acknowledge")
def test_a_yellow_tool_is_deployed_when_a_person_has_acknowledged_each_finding_of_these_bytes(tmp_path):
    kept = opened(tmp_path)
    with pytest.raises(FlowRefused) as refused:
        deploy(tmp_path, PAYMENT)
    assert ["5:charge", "external-without-timeout:charge"] == [
        problem.what.split()[0] for problem in refused.value.problems
    ]
    assert all("run oauthbroker flow acknowledge" in problem.hint for problem in refused.value.problems)
    acknowledge(kept, PAYMENT, chosen=["5:charge"])
    with pytest.raises(FlowRefused, match="external-without-timeout:charge is not acknowledged") as refused:
        deploy(tmp_path, PAYMENT)
    assert 1 == len(refused.value.problems)
    acknowledge(kept, PAYMENT, by="bob")
    assert "yellow" == deploy(tmp_path, PAYMENT).deployed("processPayment").assessment.risk
    records = list(kept.acknowledgements.of("processPayment"))
    assert [("alice", ["5:charge"]), ("bob", ["external-without-timeout:charge"])] == [
        (each["by"], each["findings"]) for each in records
    ]
    assert all(each["at"].endswith("+00:00") and each["digest"] for each in records)


@pytest.mark.rule("001-acknowledge")
def test_a_changed_specification_asks_again(tmp_path):
    acknowledge(opened(tmp_path), PAYMENT)
    with pytest.raises(FlowRefused, match="not acknowledged"):
        deploy(tmp_path, PAYMENT + b" ")
    deploy(tmp_path, PAYMENT)


def test_an_acknowledgement_that_is_there_is_not_recorded_twice_and_none_is_ever_changed(tmp_path):
    kept = opened(tmp_path)
    assert 2 == acknowledge(kept, PAYMENT)
    before = tree(tmp_path)
    assert 0 == acknowledge(kept, PAYMENT, by="bob")
    assert before == tree(tmp_path)
    acknowledge(kept, PAYMENT + b" ")
    assert before.items() < tree(tmp_path).items()


@pytest.mark.rule("000-rules-0", "001-risk-3", "001-risk-4")
@pytest.mark.parametrize(
    "nodes", [{"a": "write"}, {"a": "transaction", "b": "transaction"}, {"a": ("transform", {"expression": "none.at"})}]
)
def test_a_red_or_refused_tool_is_neither_acknowledged_nor_deployed(tmp_path, nodes):
    raw = json.dumps(written(nodes, [("a", "b")] if "b" in nodes else [])).encode()
    for act in (lambda: deploy(tmp_path, raw), lambda: acknowledge(opened(tmp_path), raw)):
        with pytest.raises(FlowRefused, match=r"is red|not bound here"):
            act()
    assert {} == tree(tmp_path)


@pytest.mark.parametrize("by", ["", " ", "a\nb", "\x1b[31m", "x" * 101])
def test_a_name_that_is_no_line_of_text_is_refused(tmp_path, by):
    for act in (
        lambda: acknowledge(opened(tmp_path), PAYMENT, by=by),
        lambda: opened(tmp_path).deploy(green(), "tool.json", by=by),
        lambda: opened(tmp_path).activate("tool", 1, by=by),
    ):
        with pytest.raises(BrokerError, match="--by takes a name"):
            act()


def test_a_finding_that_the_tool_does_not_have_is_refused(tmp_path):
    with pytest.raises(BrokerError, match="'5:none' is no finding of this tool; it has 5:charge, external-without"):
        acknowledge(opened(tmp_path), PAYMENT, chosen=["5:none"])


# Files that others wrote, or that were damaged: (the change of a stored version, the reason)
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a newer format": (lambda kept: {**kept, "format": 2}, "Of a newer format. Upgrade oauthbroker"),
    "a format of another type": (lambda kept: {**kept, "format": True}, "Damaged"),
    "another specification": (lambda kept: {**kept, "specification": green(1, "Planted").decode()}, "Damaged"),
    "another digest": (lambda kept: {**kept, "digest": "0" * 64}, "Damaged"),
    "the name of another tool": (lambda kept: {**kept, "name": "other"}, "Damaged"),
    "another version": (lambda kept: {**kept, "version": 2}, "Damaged"),
    "a member less": (lambda kept: {name: value for name, value in kept.items() if name != "by"}, "Damaged"),
    "a member more": (lambda kept: {**kept, "more": 1}, "Damaged"),
    "a list": (lambda kept: [kept], "Damaged"),
    "a policy that is none": (lambda kept: {**kept, "policies": [{"name": "p"}]}, "Missing"),
    "a policy of another type": (lambda kept: {**kept, "policies": [1]}, "another type"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_stored_version_that_was_changed_is_refused_and_the_others_are_used(tmp_path, name):
    change, reason = DAMAGE[name]
    deploy(tmp_path, green())
    deploy(tmp_path, green(2))
    file = tmp_path / "tool/versions/1.json"
    file.write_text(json.dumps(change(stored(tmp_path))), "utf-8")
    with pytest.raises(FlowRefused, match=reason):
        opened(tmp_path).deployed("tool@1")
    assert 2 == opened(tmp_path).deployed("tool@2").tool.version


def damaged_files(file: Path) -> Iterator[str]:
    """Change a file to each thing that is no document."""
    raw = file.read_bytes()
    for content in (b"", raw[:-9], b"\xff" + raw, b"{}", b" " * (kept_files.MOST_BYTES + 1)):
        file.write_bytes(content)
        yield "bytes"
    file.unlink()
    os.mkfifo(file)
    yield "a pipe"
    file.unlink()
    aside = file.with_name("aside")
    aside.write_bytes(raw)
    file.symlink_to(aside)
    yield "a link"
    file.unlink()
    file.mkdir()
    yield "a folder"


@pytest.mark.parametrize("kind", ["versions", "activations", "acknowledgements", "withdrawals"])
def test_a_damaged_file_refuses_what_needs_it(tmp_path, kind):
    acknowledge(opened(tmp_path), PAYMENT)
    deploy(tmp_path, PAYMENT).withdraw("processPayment", 1, by="bob", serving=True)
    changed = json.dumps({**json.loads(PAYMENT), "version": 2}).encode()
    for _ in damaged_files(tmp_path / "processPayment" / kind / "1.json"):
        with pytest.raises(FlowRefused, match=r"1\.json:1:1: Damaged, or not written by this program. Restore it"):
            opened(tmp_path).deployed("processPayment")
            deploy(tmp_path, changed)


def test_a_record_of_an_activation_that_was_removed_is_missed(tmp_path):
    kept = deploy(tmp_path, green())
    deploy(tmp_path, green(2))
    kept.activate("tool", 2, by="bob")
    (tmp_path / "tool/activations/1.json").unlink()
    with pytest.raises(FlowRefused, match=r"activations/1\.json:1:1: Missing. Restore it"):
        kept.serving("tool")


def test_a_red_version_that_was_planted_does_not_run(tmp_path):
    deploy(tmp_path, green())
    raw = json.dumps(written({"a": "write"}, [])).encode()
    digest = hashlib.sha256(raw).hexdigest()
    changed = {**stored(tmp_path), "specification": raw.decode(), "digest": digest}
    (tmp_path / "tool/versions/1.json").write_text(json.dumps(changed), "utf-8")
    with pytest.raises(FlowRefused, match="4:a is red"):
        opened(tmp_path).deployed("tool@1")


def test_files_and_folders_of_other_names_are_left_alone(tmp_path):
    deploy(tmp_path, green())
    for name in (
        "README.md",
        "tool/notes.txt",
        "tool/versions/1.json~",
        "tool/versions/01.json",
        "Tool/versions/1.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", "utf-8")
    kept = opened(tmp_path)
    assert (["tool"], [1], 1) == (kept.names(), kept.numbers("tool"), kept.serving("tool"))


def test_of_many_deployments_of_one_version_one_wins_and_the_others_are_refused(tmp_path):
    def attempt(number: int) -> str:
        try:
            deploy(tmp_path, green(description=str(number)))
        except FlowRefused as refused:
            return refused.problems[0].what
        return f"won {number}"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(16)))
    (winner,) = (answer for answer in answers if answer.startswith("won"))
    assert {"this version exists with other bytes", winner} == set(answers)
    assert winner == f"won {opened(tmp_path).deployed('tool').tool.description}"


def test_versions_that_are_deployed_at_once_are_all_there(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda version: deploy(tmp_path, green(version)), range(1, 9)))
    assert [*range(1, 9)] == opened(tmp_path).numbers("tool")


def test_a_lock_that_another_command_holds_is_a_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_files, "LOCK_SECONDS", 0)
    deploy(tmp_path, green())
    with FileLock(tmp_path / ".lock"), pytest.raises(BrokerError) as refused:
        deploy(tmp_path, green(2))
    assert Code.STORE_LOCKED == refused.value.code


def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path):
    (tmp_path / "flows").write_text("", "utf-8")
    with pytest.raises(BrokerError) as refused:
        deploy(tmp_path / "flows", green())
    assert Code.STORE_UNAVAILABLE == refused.value.code


STORIES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "the first version": (lambda _: None, lambda folder: deploy(folder, green())),
    "a second version": (lambda folder: deploy(folder, green()), lambda folder: deploy(folder, green(2))),
    "an acknowledgement": (lambda _: None, lambda folder: acknowledge(opened(folder), PAYMENT)),
    "an activation": (
        lambda folder: (deploy(folder, green()), deploy(folder, green(2))),
        lambda folder: opened(folder).activate("tool", 2, by="bob"),
    ),
    "a withdrawal": (
        lambda folder: (deploy(folder, green()), deploy(folder, green(2))),
        lambda folder: opened(folder).withdraw("tool", 2, by="bob"),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_command_that_is_killed_at_any_step_leaves_each_file_whole_or_absent_and_can_be_run_again(
    tmp_path, monkeypatch, name
):
    prepare, act = STORIES[name]
    before, done = tmp_path / "before", tmp_path / "done"
    for folder in (before, done):
        folder.mkdir()
        prepare(folder)
    act(done)
    whole = tree(done)
    for step in range(MOST_STEPS):
        folder = tmp_path / str(step)
        shutil.copytree(before, folder)
        steps: list[str] = []
        with monkeypatch.context() as patched:
            kill_at(patched, step, steps)
            try:
                act(folder)
            except Killed:
                assert tree(folder).items() <= whole.items(), steps
                assert tree(before).items() <= tree(folder).items(), steps
        if len(steps) <= step:
            break
        act(folder)
        assert whole == tree(folder), steps
    else:
        pytest.fail("the sweep does not end")
    assert step > 5
    link = steps.index("link")
    assert ["write", "fsync", "link", "open", "fsync"] == steps[link - 2 : link + 3]  # the file, then its folder


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int, steps: list[str]) -> None:
    """From the given change of the disk on, every change fails as if the process were gone."""

    def killing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            if len(steps) <= step:
                steps.append(name)
            if len(steps) > step:
                raise Killed(name)
            return real(*args, **more)

        return run

    for name in CHANGING:
        monkeypatch.setattr(os, name, killing(name, getattr(os, name)))


def acknowledge(kept: FlowVersions, raw: bytes, by: str = "alice", chosen: Any = ()) -> int:
    tool = load_tool(raw, "tool.json")
    return len(kept.acknowledgements.record(tool, assess(tool), by=by, chosen=chosen))


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "tool/versions/1.json").read_bytes())
    return found


def tree(folder: Path) -> dict[str, bytes]:
    """The documents below a folder; times are the same in each test's clock."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json")}


@pytest.mark.rule("001-acknowledge")
def test_a_version_in_which_this_program_finds_more_than_was_acknowledged_is_refused_until_a_person_accepts_it(
    tmp_path,
):
    acknowledge(opened(tmp_path), PAYMENT)
    deploy(tmp_path, PAYMENT)
    record = tmp_path / "processPayment/acknowledgements/1.json"
    document = json.loads(record.read_text("utf-8"))
    record.write_text(json.dumps({**document, "findings": document["findings"][1:]}), "utf-8")
    with pytest.raises(FlowRefused, match="is not acknowledged"):
        opened(tmp_path).deployed("processPayment")
    acknowledge(opened(tmp_path), PAYMENT)
    assert 1 == opened(tmp_path).deployed("processPayment").tool.version
