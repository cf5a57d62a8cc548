"""Versions are immutable, several are deployed at once, and a deployment that is killed leaves all of a version or none."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.deployment.versions import FlowVersions
from oauthbroker.flowtools.risk.assessment import assess
from oauthbroker.flowtools.risk.records import FlowRecords
from oauthbroker.flowtools.specification.policies import load_policy
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.flowtools.specification.spec import load_tool
from oauthbroker.plugins import PluginState
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.kit.flow_versions import on_loop_of, state_of, store_of, versions_in
from tests.unit.flowtools.kit import example, written
from tests.unit.flowtools.run_kit import Entries

POLICY = {"name": "p", "version": 1, "description": "", "type": "custom", "condition": "rows > 1", "action": "warn"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOST_STEPS = 20  # more than a deployment makes; the sweep ends by itself
PAYMENT = example("processPayment.json")


class Killed(Exception):
    """The process is gone."""


def green(version: int = 1, description: str = "A tool", **more: Any) -> bytes:
    data = written({"a": "transform"}, [], version=version, description=description, **more)
    return json.dumps(data).encode()


def opened(folder: Path) -> FlowVersions:
    return versions_in(folder, TestClock(NOON))


def deploy(folder: Path, raw: bytes, **more: Any) -> FlowVersions:
    kept = opened(folder)
    kept.deploy(raw, "tool.json", by="alice", **more)
    return kept


def test_each_act_of_a_program_is_an_audit_entry_and_none_is_done_without_one(tmp_path):
    entries = Entries()
    kept = versions_in(tmp_path, audit=entries)
    for version in (1, 1, 2, 3):
        kept.deploy(green(version), "tool.json", by="alice")
    kept.activate("tool", 2, by="bob", account="root")
    kept.withdraw("tool", 1, by="bob")
    assert [
        ("VersionDeployed", 1, "alice", "alice"),
        ("VersionDeployed", 2, "alice", "alice"),
        ("VersionDeployed", 3, "alice", "alice"),
        ("VersionActivated", 2, "bob", "root"),
        ("VersionWithdrawn", 1, "bob", "bob"),
    ] == [(type(each).__name__, each.version, each.by, each.actor) for each in entries]
    entries.refuses = True
    for act in (
        lambda: kept.deploy(green(4), "tool.json", by="alice"),
        lambda: kept.activate("tool", 3, by="bob"),
        lambda: kept.withdraw("tool", 2, by="bob", serving=True),
    ):
        with pytest.raises(BrokerError):
            act()
    assert ([1, 2, 3], 2, None) == (kept.numbers("tool"), kept.serving("tool"), kept.withdrawn("tool", 2))


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
    (text,) = (value for key, value in tree(tmp_path).items() if key.startswith("flow-text/"))
    assert (raw.decode(), "alice") == (text["specification"], flow.by)
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
    change(tmp_path, f"flow-text/{stored(tmp_path)['versions'][1]['text']}", lambda _: None)
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
    assert all("run `oauthbroker flow acknowledge`" in problem.hint for problem in refused.value.problems)
    acknowledge(kept, PAYMENT, chosen=["5:charge"])
    with pytest.raises(FlowRefused, match="external-without-timeout:charge is not acknowledged") as refused:
        deploy(tmp_path, PAYMENT)
    assert 1 == len(refused.value.problems)
    acknowledge(kept, PAYMENT, by="bob")
    assert "yellow" == deploy(tmp_path, PAYMENT).deployed("processPayment").assessment.risk
    records = kept.acknowledgements.of(load_tool(PAYMENT, "tool.json"))
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
    assert before != tree(tmp_path)
    assert within(before, tree(tmp_path))


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


def change(folder: Path, key: str, made: Callable[[Any], Any]) -> None:
    """Change a record, as no program of ours does."""
    on_loop_of(state(folder).change(key, made))


def state(folder: Path) -> PluginState:
    return state_of(store_of(folder))


def with_text(folder: Path, raw: bytes, **more: Any) -> None:
    """Plant a specification with its right hash and digest in the place of the first version."""
    text = {"yaml": False, "specification": raw.decode(), "policies": [], **more}
    name = opened(folder)._records.keep(text)
    entry = {"digest": hashlib.sha256(raw).hexdigest(), "text": name, "version": 1, "by": "eve", "at": NOON.isoformat()}
    change(folder, "flow/tool", lambda there: {**there, "versions": [entry, *there["versions"][1:]]})


@pytest.mark.parametrize("damaged", ["specification", "policies", "yaml"])
def test_a_stored_version_that_was_changed_is_refused_and_the_others_are_used(tmp_path, damaged):
    deploy(tmp_path, green())
    deploy(tmp_path, green(2))
    (text,) = (each["text"] for each in stored(tmp_path)["versions"] if each["version"] == 1)
    change(tmp_path, f"flow-text/{text}", lambda there: {**there, damaged: ""})
    with pytest.raises(FlowRefused, match=r"tool@1:1:1: Damaged. Restore the store from a backup"):
        opened(tmp_path).deployed("tool@1")
    assert 2 == opened(tmp_path).deployed("tool@2").tool.version


def test_a_text_that_is_gone_is_refused(tmp_path):
    deploy(tmp_path, green())
    change(tmp_path, f"flow-text/{stored(tmp_path)['versions'][0]['text']}", lambda _: None)
    with pytest.raises(FlowRefused, match=r"tool@1:1:1: Damaged"):
        opened(tmp_path).deployed("tool")


def test_a_record_whose_bytes_do_not_open_is_refused_and_the_others_are_used(tmp_path, monkeypatch):
    deploy(tmp_path, green())
    deploy(tmp_path, green(name="other"))
    real = PluginState.get

    async def get(self: PluginState, key: str) -> Any:
        if key == "flow/tool":
            raise BrokerError(Code.RECORD_CORRUPT)
        return await real(self, key)

    monkeypatch.setattr(PluginState, "get", get)
    kept = opened(tmp_path)
    assert (["other", "tool"], "other") == (kept.names(), kept.deployed("other").tool.name)
    for read in (kept.deployed, kept.numbers, kept.serving):
        with pytest.raises(FlowRefused, match="tool:1:1: Damaged"):
            read("tool")


def test_a_record_of_a_newer_format_is_neither_read_nor_changed(tmp_path):
    deploy(tmp_path, green())
    change(tmp_path, "flow/tool", lambda there: {**there, "format": 2})
    before = tree(tmp_path)
    for act in (lambda: opened(tmp_path).deployed("tool"), lambda: deploy(tmp_path, green(2))):
        with pytest.raises(FlowRefused, match=r"tool:1:1: Of a newer format. Upgrade oauthbroker"):
            act()
    assert before == tree(tmp_path)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (json.dumps(written({"a": "write"}, [])).encode(), "4:a is red"),
        (green(3), "Damaged"),
        (green(name="other"), "Damaged"),
        (b"{}", "Missing"),
    ],
    ids=["red", "another version", "another tool", "no tool"],
)
def test_a_version_that_was_planted_does_not_run(tmp_path, raw, why):
    deploy(tmp_path, green())
    with_text(tmp_path, raw)
    with pytest.raises(FlowRefused, match=why):
        opened(tmp_path).deployed("tool@1")


def test_values_of_other_keys_are_left_alone(tmp_path):
    deploy(tmp_path, green())
    change(tmp_path, "webhook/shop", lambda _: ["a secret of sixteen"])
    kept = opened(tmp_path)
    assert (["tool"], [1], 1) == (kept.names(), kept.numbers("tool"), kept.serving("tool"))


def test_a_tool_that_was_only_acknowledged_has_no_version(tmp_path):
    acknowledge(opened(tmp_path), PAYMENT)
    assert ([], None) == (opened(tmp_path).names(), opened(tmp_path).serving("processPayment"))


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


def test_two_deployments_whose_lease_was_lost_do_not_both_win(tmp_path, monkeypatch):
    real, other = FlowRecords.keep, [green(description="Other")]

    def keep(self: FlowRecords, text: Any) -> str:
        if other:
            deploy(tmp_path, other.pop())  # between our look and our entry
        return real(self, text)

    monkeypatch.setattr(FlowRecords, "alone", lambda _self, work: work())
    monkeypatch.setattr(FlowRecords, "keep", keep)
    with pytest.raises(FlowRefused, match="This version exists with other bytes"):
        deploy(tmp_path, green())
    assert "Other" == opened(tmp_path).deployed("tool").tool.description


def test_a_deployment_after_the_end_of_the_brokers_loop_is_refused_as_one_without_a_broker(tmp_path):
    async def made() -> FlowVersions:
        return FlowVersions(state_of(store_of(tmp_path)), TestClock(NOON), lambda _: None)

    kept = asyncio.run(made())
    for call in (lambda: kept.deploy(green(), "tool.json", by="alice"), kept.names):
        with pytest.raises(BrokerError) as refused:
            call()
        assert (Code.BROKER_UNREACHABLE, "its event loop has ended") == (refused.value.code, refused.value.note)


def test_a_loop_that_ends_while_a_command_writes_raises_no_error_of_asyncio(tmp_path):
    async def made() -> FlowRecords:
        return FlowRecords(state_of(store_of(tmp_path)))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    records = asyncio.run_coroutine_threadsafe(made(), loop).result()

    def work() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    with pytest.raises(BrokerError) as refused:
        records.alone(work)
    assert Code.BROKER_UNREACHABLE is refused.value.code


async def test_deployments_that_fill_the_pool_of_threads_do_not_wait_for_a_thread_of_it(tmp_path):
    """Two store objects on one folder are as two processes."""
    stores = [open_file_store(tmp_path) for _ in range(2)]
    try:
        kept = [FlowVersions(state_of(store), TestClock(NOON), lambda _: None) for store in stores]
        with ThreadPoolExecutor(2) as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            deploying = [asyncio.to_thread(kept[n % 2].deploy, green(n), "tool.json", by="alice") for n in range(1, 9)]
            await asyncio.gather(*deploying)
            assert [*range(1, 9)] == await asyncio.to_thread(kept[0].numbers, "tool")
    finally:
        for store in stores:
            await store.close()


def test_versions_that_are_deployed_at_once_are_all_there(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda version: deploy(tmp_path, green(version)), range(1, 9)))
    assert [*range(1, 9)] == opened(tmp_path).numbers("tool")


def test_a_lock_that_another_command_holds_is_a_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr("oauthbroker.flowtools.risk.records.LOCK_SECONDS", 0)
    deploy(tmp_path, green())
    kept = opened(tmp_path)
    with pytest.raises(BrokerError) as refused:
        kept._records.alone(lambda: deploy(tmp_path, green(2)))
    assert Code.STORE_LOCKED == refused.value.code


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
def test_a_command_that_is_killed_at_any_step_leaves_older_entries_and_can_be_run_again(tmp_path, monkeypatch, name):
    prepare, act = STORIES[name]
    prepare(tmp_path / "done")
    act(tmp_path / "done")
    whole, real = tree(tmp_path / "done"), PluginState.change
    for step in range(MOST_STEPS):
        folder, left = tmp_path / str(step), [step]
        prepare(folder)
        before = tree(folder)

        async def change(self: PluginState, *given: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return await real(self, *given)

        with monkeypatch.context() as patched:
            patched.setattr(PluginState, "change", change)
            with suppress(Killed):
                act(folder)
        assert within(before, tree(folder))
        assert within(tree(folder), whole)
        if left[0] >= 0:
            break
        act(folder)
        assert whole == tree(folder)
    else:
        pytest.fail("the sweep does not end")
    assert step > 1


def within(less: dict[str, Any], more: dict[str, Any]) -> bool:
    """Tell whether records only grew."""
    return less.keys() <= more.keys() and all(
        all(more[key][kind][: len(there)] == there for kind, there in record.items() if isinstance(there, list))
        if key.startswith("flow/")
        else key == "flows" or record == more[key]
        for key, record in less.items()
    )


async def test_the_records_of_a_file_store_are_sealed_and_are_there_for_another_process(tmp_path):
    raw = green(description="a canary of the specification")
    for act in (lambda kept: kept.deploy(raw, "tool.json", by="alice"), lambda kept: kept.deployed("tool")):
        store = open_file_store(tmp_path)
        try:
            flow = await asyncio.to_thread(act, FlowVersions(state_of(store), TestClock(NOON), lambda _: None))
            assert ("alice", 1) == (flow.by, flow.tool.version)
        finally:
            await store.close()
    files = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert files
    assert not any(b"canary of" in each or b"alice" in each for each in files)


def acknowledge(kept: FlowVersions, raw: bytes, by: str = "alice", chosen: Any = ()) -> int:
    tool = load_tool(raw, "tool.json")
    return len(kept.acknowledgements.record(tool, assess(tool), by=by, chosen=chosen))


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = on_loop_of(state(folder).get("flow/tool"))
    return found


def tree(folder: Path) -> dict[str, Any]:
    """All records; times are the same in each test's clock."""

    async def read() -> dict[str, Any]:
        return {key: value async for key, value in state(folder).all()}

    return on_loop_of(read())


@pytest.mark.rule("001-acknowledge")
def test_a_version_in_which_this_program_finds_more_than_was_acknowledged_is_refused_until_a_person_accepts_it(
    tmp_path,
):
    acknowledge(opened(tmp_path), PAYMENT)
    deploy(tmp_path, PAYMENT)

    def less(there: dict[str, Any]) -> dict[str, Any]:
        (entry,) = there["acknowledgements"]
        return {**there, "acknowledgements": [{**entry, "findings": entry["findings"][1:]}]}

    change(tmp_path, "flow/processPayment", less)
    with pytest.raises(FlowRefused, match="is not acknowledged"):
        opened(tmp_path).deployed("processPayment")
    acknowledge(opened(tmp_path), PAYMENT)
    assert 1 == opened(tmp_path).deployed("processPayment").tool.version
