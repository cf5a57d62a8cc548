"""`oauthbroker flow acknowledge`, `flow deploy`, `flow activate` and `flow versions`."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.cli import command_inputs, commands
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.risk.audit_types import (
    FindingAcknowledged,
    VersionActivated,
    VersionDeployed,
    VersionWithdrawn,
)
from oauthbroker.flowtools.running import journal
from oauthbroker.plugins import PluginState
from tests.kit.flow_versions import damage, state_of, store_of
from tests.unit.flowtools.kit import EXAMPLES, example, written
from tests.unit.flowtools.run_kit import Entries

PAYMENT = EXAMPLES / "processPayment.json"
ASKS = "5:charge is not acknowledged: an external call without a retry node"
USES = ("--entity", "entities", "--sandbox")


def run(*words: object):
    return CliRunner().invoke(commands.app, [*map(str, words)])


@pytest.fixture
def entries() -> Entries:
    return Entries()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: Entries) -> Path:
    """A folder whose configuration is that of a broker without a FlowService; `elsewhere` is another one."""

    @asynccontextmanager
    async def opened(config: Path, *, background: bool) -> AsyncIterator[Any]:
        assert not background
        bundle = SimpleNamespace(plugins={}, settings=SimpleNamespace(store_root="store"))
        yield SimpleNamespace(bundle=bundle, plugin_state=lambda _: state(config), granting=None, audit=entries)

    monkeypatch.setattr(command_inputs, "open_broker", opened)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "entities").mkdir()
    for name in ("Reservation", "Payment"):
        (tmp_path / "entities" / f"{name}.json").write_bytes(entity(name))
    return tmp_path


def state(config: Path) -> PluginState:
    return state_of(store_of(config.absolute()))


def entity(name: str) -> bytes:
    status = {"initial": "confirmed", "transitions": {"confirmed": []}}
    return json.dumps({"name": name, "fields": {"reservationId": {"type": "uuid"}}, "status": status}).encode()


UNCONFIGURED: dict[str, tuple[tuple[str, ...], str]] = {
    "no entities": (("--sandbox",), "config.entity: No declared entity"),
    "an entity that is missing": (("--sandbox", "--entity", "entities/Payment.json"), "No declared entity"),
    "no adapter": (("--entity", "entities"), "No configured provider of payments"),
}


@pytest.mark.rule("000-deploy-ready")
@pytest.mark.parametrize("name", UNCONFIGURED)
def test_a_version_is_not_deployed_without_its_entities_and_adapters(name):
    words, why = UNCONFIGURED[name]
    assert 0 == run("acknowledge", PAYMENT, "--by", "alice").exit_code
    refused = run("deploy", PAYMENT, *words)
    assert (1, True, "") == (refused.exit_code, why in refused.output, run("versions").output)
    assert 0 == run("deploy", PAYMENT, *USES).exit_code


@pytest.mark.rule("001-acknowledge", "001-deploy")
def test_a_yellow_tool_from_its_refusal_to_its_second_version():
    refused = run("deploy", PAYMENT, *USES)
    assert (1, True) == (refused.exit_code, ASKS in refused.output)
    acknowledged = run("acknowledge", PAYMENT, "--by", "alice")
    assert "5:charge: an external call without a retry node\n" in acknowledged.output
    assert acknowledged.output.endswith("processPayment version 1: 2 findings acknowledged\n")
    assert "processPayment version 1: deployed; version 1 serves\n" == run("deploy", PAYMENT, *USES).output
    second = Path("second.json")
    second.write_text(json.dumps({**json.loads(example(PAYMENT.name)), "version": 2}), "utf-8")
    assert 1 == run("deploy", second, *USES).exit_code
    assert 0 == run("acknowledge", second, "--by", "alice").exit_code
    hint = "to let it serve, run `oauthbroker flow activate processPayment 2 --config config`"
    assert f"processPayment version 2: deployed; version 1 serves; {hint}\n" == run("deploy", second, *USES).output
    activated = run("activate", "processPayment", 2, "--by", "bob")
    assert "processPayment version 2: activated; version 2 serves\n" == activated.output
    first, serving = run("versions").output.splitlines()
    account = pwd.getpwuid(os.getuid()).pw_name
    assert first.startswith(f"processPayment@1  yellow, c3181a45e6c2, by {account} at ")
    assert (False, True) == (first.endswith(", serves"), serving.endswith(", serves"))


def test_an_acknowledgement_names_the_findings_that_it_is_for():
    done = run("acknowledge", PAYMENT, "--by", "alice", "--finding", "5:charge")
    assert done.output.endswith("processPayment version 1: 1 finding acknowledged\n")
    assert run("acknowledge", PAYMENT, "--by", "a", "--finding", "5:charge").output.endswith(
        ": no findings acknowledged\n"
    )
    assert ASKS not in run("deploy", PAYMENT, *USES).output
    assert isinstance(run("acknowledge", PAYMENT, "--by", "a", "--finding", "5").exception, BrokerError)
    assert 2 == run("acknowledge", PAYMENT).exit_code  # --by is required


def test_each_command_answers_in_json():
    problems = json.loads(run("deploy", PAYMENT, *USES, "--json").output)["problems"]
    assert (2, "flow.nodes[5]") == (len(problems), problems[0]["path"])
    answer = json.loads(run("acknowledge", PAYMENT, "--by", "alice", "--json").output)
    assert ["5:charge", "external-without-timeout:charge"] == answer["acknowledged"]
    deployed = json.loads(run("deploy", PAYMENT, *USES, "--json").output)
    assert answer["digest"] == deployed["digest"]
    assert {"versions": [deployed], "problems": []} == json.loads(run("versions", "processPayment", "--json").output)
    assert deployed == json.loads(run("activate", "processPayment", 1, "--json").output)
    assert (True, "yellow") == (deployed["serves"], deployed["risk"])


@pytest.mark.rule("001-withdraw")
def test_a_withdrawn_version_is_reported_by_each_command(entries):
    for version in (1, 2):
        Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [], version=version)), "utf-8")
        run("deploy", "tool.json")
    assert isinstance(run("withdraw", "tool", 1).exception, BrokerError)
    done = run("withdraw", "tool", 2, "--by", " bob ", "--why", "no roles").output
    assert done.startswith("tool version 2: withdrawn by bob at ")
    assert done.endswith(" (no roles); its runs that have begun go on\n")
    reported = json.loads(run("withdraw", "tool", 2, "--json").output)
    assert ("tool", 2, "bob") == (reported["name"], reported["version"], reported["withdrawn"]["by"])
    assert " version 1 serves; version 2 is withdrawn by bob at " in run("deploy", "tool.json").output
    first, second = run("versions").output.splitlines()
    assert ("withdrawn" not in first, "withdrawn by bob at" in second) == (True, True)
    listed = json.loads(run("versions", "--json").output)["versions"]
    assert [None, "no roles"] == [each["withdrawn"] and each["withdrawn"]["why"] for each in listed]
    assert run("withdraw", "tool", 1, "--serving").output.startswith("tool version 1: withdrawn by ")
    account = pwd.getpwuid(os.getuid()).pw_name
    wanted = [(2, "bob"), (1, account)]
    withdrawals = [each for each in entries if isinstance(each, VersionWithdrawn)]
    assert withdrawals == [VersionWithdrawn(tool="tool", version=of, actor=account, by=by) for of, by in wanted]


def test_each_acknowledgement_deployment_and_activation_has_one_entry(entries):
    account = pwd.getpwuid(os.getuid()).pw_name
    for _ in range(2):  # the second time changes nothing, and has no entry
        digest = json.loads(run("acknowledge", PAYMENT, "--by", " Ada ", "--json").output)["digest"]
        run("deploy", PAYMENT, "--by", " Ada ", *USES)
        run("activate", "processPayment", 1)
    about: dict[str, Any] = {"tool": "processPayment", "version": 1, "actor": account, "by": "Ada"}
    known: dict[str, Any] = {**about, "digest": digest}
    *accepted, deployed = entries
    assert deployed == VersionDeployed(**known)
    assert FindingAcknowledged(**known, finding="5:charge") in accepted
    assert len({each.finding for each in accepted}) == len(accepted)
    second = json.loads(PAYMENT.read_bytes()) | {"version": 2}
    Path("second.json").write_text(json.dumps(second), "utf-8")
    run("acknowledge", "second.json", "--by", "Ada")
    run("deploy", "second.json", *USES)
    run("activate", "processPayment", 2, "--by", "Ada")
    assert [*entries][-1] == VersionActivated(**(about | {"version": 2}))


@pytest.mark.parametrize("refused", ["acknowledge", "deploy", "activate"])
def test_nothing_is_deployed_activated_or_acknowledged_without_its_entry(entries, refused):
    for version in (1, 2):
        second = json.loads(PAYMENT.read_bytes()) | {"version": version}
        Path(f"{version}.json").write_text(json.dumps(second), "utf-8")
    steps: list[tuple[object, ...]] = [
        ("acknowledge", "1.json", "--by", "Ada"),
        ("deploy", "1.json", *USES),
        ("acknowledge", "2.json", "--by", "Ada"),
        ("deploy", "2.json", *USES),
        ("activate", "processPayment", 2),
    ]
    last = max(index for index, step in enumerate(steps) if step[0] == refused)
    for step in steps[:last]:
        assert run(*step).exit_code == 0
    before, entries.refuses = run("versions").output, True
    error = run(*steps[last]).exception
    assert isinstance(error, BrokerError)
    assert (Code.STORE_UNAVAILABLE, before) == (error.code, run("versions").output)
    entries.refuses = False
    done = run(*steps[last])
    assert (0, False) == (done.exit_code, "no finding" in done.output)
    assert (refused == "acknowledge") == (before == run("versions").output)


@pytest.mark.rule("001-withdraw")
def test_a_version_is_not_withdrawn_without_its_entry_in_the_audit_log(entries):
    Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [])), "utf-8")
    run("deploy", "tool.json")
    entries.refuses = True
    refused = run("withdraw", "tool", 1, "--serving").exception
    assert isinstance(refused, BrokerError)
    assert (Code.STORE_UNAVAILABLE, False) == (refused.code, "withdrawn" in run("versions").output)


def test_versions_lists_what_can_be_used_and_tells_what_cannot():
    for version in (1, 2):
        Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [], version=version)), "utf-8")
        assert 0 == run("deploy", "tool.json", "--config", "elsewhere").exit_code
    assert (0, "") == ((nothing := run("versions")).exit_code, nothing.output)
    there = state(Path("elsewhere"))
    asyncio.run(damage(there, "tool", 1))
    listed = run("versions", "--config", "elsewhere")
    assert (1, True) == (listed.exit_code, listed.output.startswith("tool@2  green"))
    assert "tool@1:1:1: Damaged. Restore the store from a backup." in listed.output
    assert ", serves" not in listed.output
    asyncio.run(there.change("flow/tool", lambda record: {**record, "format": 2}))
    listed = run("versions", "--config", "elsewhere")
    assert (1, "tool:1:1: Of a newer format. Upgrade oauthbroker.\n") == (listed.exit_code, listed.output)


def test_a_policy_that_is_invalid_deploys_nothing():
    Path("p.json").write_text("{}", "utf-8")
    Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [])), "utf-8")
    refused = run("deploy", "tool.json", "--policy", "p.json")
    assert (1, True) == (refused.exit_code, "p.json:1:1 name: Missing" in refused.output)
    assert "" == run("versions").output


def test_an_account_without_a_name_is_recorded_by_its_number(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [])), "utf-8")
    run("deploy", "tool.json")
    assert "by uid 4000000001 at" in run("versions").output


@pytest.mark.parametrize("words", [("versions",), ("activate", 1), ("withdraw", 1)])
def test_a_name_that_no_tool_can_have_is_not_deployed(words):
    refused = run(words[0], "x" * 300, *words[1:])
    assert not isinstance(refused.exception, BrokerError) or Code.REQUEST_INVALID is refused.exception.code


def test_a_state_that_no_run_has_is_refused() -> None:
    refused = run("runs", "--state", "bogus").exception
    assert isinstance(refused, BrokerError)
    assert (Code.REQUEST_INVALID, True) == (refused.code, "succeeded" in str(refused.note))
    assert "the nearest known name is escalated" in str(run("runs", "--state", "escalatd").exception)


def test_a_tool_that_was_never_deployed_and_has_no_runs_is_refused_with_the_nearest_name() -> None:
    Path("tool.json").write_text(json.dumps(written({"a": "transform"}, [])), "utf-8")
    run("deploy", "tool.json")
    Path("flows.db").touch()
    done = run("runs", "--tool", "tool", "--database", "sqlite:///flows.db")
    assert (0, "") == (done.exit_code, done.output)
    refused = run("runs", "--tool", "tol", "--database", "sqlite:///flows.db").exception
    assert isinstance(refused, BrokerError)
    assert (Code.NOT_FOUND, True) == (refused.code, "the nearest known name is tool" in str(refused.note))


def test_the_runs_of_a_named_database_need_no_configuration_here(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    Path("flows.db").touch()
    done = run("runs", "--tool", "tool", "--database", "sqlite:///flows.db")
    assert (0, "") == (done.exit_code, done.output)


def test_runs_are_listed_while_another_process_writes_to_the_database() -> None:
    writer = Database("sqlite:///flows.db")
    with writer.transaction() as connection:
        journal.prepare(connection)
    with writer.transaction():
        listed = run("runs", "--database", "sqlite:///flows.db")
    assert (0, "") == (listed.exit_code, listed.output)
    writer.engine.dispose()


@pytest.mark.parametrize("words", [("versions",), ("runs",), ("run", "tool"), ("secret", "list")])
def test_a_folder_without_a_configuration_names_the_command_that_writes_an_example(tmp_path, monkeypatch, words):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    refused = run(*words).exception
    assert isinstance(refused, BrokerError)
    assert (Code.CONFIG_INVALID, True) == (refused.code, "oauthbroker flow new FOLDER" in str(refused.note))
