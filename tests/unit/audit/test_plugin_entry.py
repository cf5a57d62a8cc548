"""Audit entries of plug-ins: which types a plug-in may declare, which entries it may write, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from types import new_class
from typing import Any

import pytest

from oauthbroker.audit import AuditEntry, TurnEnded
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import rest_of
from oauthbroker.audit.memory import AuditList, ListTrail
from oauthbroker.audit.plugin_entry import LONGEST, PluginAuditEntry, PluginAuditTypes, is_of_plugin
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from tests.kit.audit import AT, FOREIGN_KEYS, KEYS


class Dug(PluginAuditEntry, plugin="garden"):
    tool: str
    depth: int
    deep: bool = False
    grant: str | None = None


class TurnBegun(PluginAuditEntry, plugin="garden"):
    turn: str


class Lent(PluginAuditEntry, plugin="garden"):
    actor: str | None
    by: str | None = None
    subject: str | None = None


class WithSecret(PluginAuditEntry, plugin="garden"):
    token: Secret


class WithFloat(PluginAuditEntry, plugin="garden"):
    depth: float | None


class WithType(PluginAuditEntry, plugin="garden"):
    type: str


class WithMac(PluginAuditEntry, plugin="garden"):
    mac: str


class WithList(PluginAuditEntry, plugin="garden"):
    tools: list[str]


def entry_class(name: str, member: str) -> type:
    return new_class(
        name, (PluginAuditEntry,), {"plugin": "garden"}, lambda body: body.update(__annotations__={member: int})
    )


def types(*known: type) -> PluginAuditTypes:
    return PluginAuditTypes(lambda plugin: known if plugin == "garden" else ())


def refusal(act: Any) -> BrokerError:
    with pytest.raises(BrokerError) as refused:
        act()
    return refused.value


def test_a_plugin_may_write_the_entries_that_it_declared() -> None:
    taken = types(Dug, TurnBegun)
    for entry in (
        Dug(tool="spade", depth=3),
        Dug(tool="spade", depth=3, deep=True, grant="sha256:00"),
        TurnBegun(turn="turn-1"),
    ):
        taken.check(entry)


@pytest.mark.parametrize(
    "entry",
    [
        TurnEnded(turn="turn-1"),
        TurnBegun(turn="turn-1"),
        Dug(tool="spade", depth=True),
        Dug(tool="spade", depth="3"),  # type: ignore[arg-type]
        Dug(tool=Secret("s3cret"), depth=3),  # type: ignore[arg-type]
        Dug(tool="spade", depth=None),  # type: ignore[arg-type]
        Dug(tool="spade", depth=3, grant=["x"]),  # type: ignore[arg-type]
        Dug(tool="spade", depth=3, deep=1),  # type: ignore[arg-type]
    ],
    ids=["one of ours", "not declared", "bool for int", "str for int", "a secret", "None", "a list", "int for bool"],
)
def test_any_other_entry_is_refused(entry: AuditEntry) -> None:
    refused = refusal(lambda: types(Dug).check(entry))
    assert Code.REQUEST_INVALID is refused.code
    assert "s3cret" not in str(refused)


def test_a_text_or_number_that_is_longer_than_any_of_ours_is_refused() -> None:
    for longest in (Dug(tool="x" * LONGEST, depth=2**63 - 1), Dug(tool="x", depth=3, grant="g" * 10_000)):
        types(Dug).check(longest)
    for entry in (Dug(tool="x" * (LONGEST + 1), depth=3), Dug(tool="x", depth=2**64)):
        refused = refusal(lambda: types(Dug).check(entry))  # noqa: B023
        assert (Code.REQUEST_INVALID, True) == (refused.code, "longer than 1024 characters" in refused.note)


@pytest.mark.parametrize("kind", [WithSecret, WithFloat, WithType, WithMac, WithList])
def test_a_type_whose_members_may_not_stand_in_the_log_is_refused(kind: type) -> None:
    refused = refusal(lambda: types(Dug, kind).register("garden"))
    assert Code.CONFIG_INVALID is refused.code
    assert "the plug-in garden" in str(refused)
    assert kind.__name__ in str(refused)


@pytest.mark.parametrize(
    "kind", [entry_class("Größe", "depth"), entry_class("Size", "größe"), entry_class("_Hidden", "depth")]
)
def test_a_name_that_no_reader_of_the_log_knows_is_refused(kind: type) -> None:
    refused = refusal(lambda: types(Dug, kind).register("garden"))
    assert Code.CONFIG_INVALID is refused.code
    assert f"the plug-in garden: the audit entry {kind.__name__!a}" in str(refused)


@pytest.mark.parametrize(
    "given", [(TurnEnded,), (int,), (PluginAuditEntry,), Dug(tool="x", depth=1), "Dug", None, (None,)]
)
def test_a_value_that_is_no_tuple_of_a_plugins_types_is_refused(given: object) -> None:
    assert "the plug-in garden" in str(refusal(lambda: PluginAuditTypes(lambda _: given).register("garden")))


def test_a_type_of_another_plugin_is_refused() -> None:
    assert "the plug-in orchard" in str(refusal(lambda: PluginAuditTypes(lambda _: (Dug,)).register("orchard")))


def test_the_log_spells_the_plugin_before_the_type_so_that_no_type_is_taken_for_one_of_ours() -> None:
    assert '"type":"garden.TurnBegun","turn":"turn-1"' == rest_of(TurnBegun(turn="turn-1"))
    assert "garden.Dug" not in AuditEntry.names()
    assert "PluginAuditEntry" not in AuditEntry.names()
    assert {"garden.Dug", "garden.TurnBegun"} <= {*PluginAuditEntry.names()}


def test_a_person_goes_by_one_pseudonym_in_each_member_that_only_this_store_can_make() -> None:
    ann = json.loads("{" + rest_of(Lent(actor="ann", by="ann", subject="ann"), KEYS.name) + "}")
    assert {KEYS.name("person", "ann")} == {ann["actor"], ann["by"], ann["subject"]}
    assert ann["actor"].startswith("person-")
    bob = json.loads("{" + rest_of(Lent(actor="bob"), KEYS.name) + "}")
    assert (None, None, True) == (bob["by"], bob["subject"], bob["actor"] != ann["actor"])
    assert ann["actor"] != json.loads("{" + rest_of(Lent(actor="ann"), FOREIGN_KEYS.name) + "}")["actor"]


@pytest.mark.parametrize(("name", "expected"), [("garden.Dug", True), ("Dug", False), ("garden.", False), ("a.b.C", False), ("TurnBegun", False), ("x.LogBegan", True)])  # fmt: skip
def test_a_type_of_a_plugin_is_known_by_its_spelling(name: str, expected: bool) -> None:
    assert expected is is_of_plugin(name)


async def test_in_memory_and_on_disk_an_entry_of_a_plugin_is_read_like_one_of_ours(tmp_path: Path) -> None:
    written = AuditList()
    on_disk = AuditFile(tmp_path, KEYS)
    for writer in (written, on_disk):
        writer.write(Dug(tool="spade", depth=3, grant="sha256:00"), AT)
        writer.write(TurnEnded(turn="turn-1"), AT)
    trail = on_disk.trail(KEYS.name)
    for each in (ListTrail(written, KEYS.name), trail):
        (line,) = await each.tail(9, type="garden.Dug")
        assert {"tool": "spade", "depth": 3, "deep": False, "grant": KEYS.name("grant", "sha256:00")} == line.fields
    on_disk.close()
    verification = await trail.verify()  # type: ignore[attr-defined]
    assert verification.sound
    assert 2 == verification.verified - 1  # and the line with which the chain begins
