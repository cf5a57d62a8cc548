"""A CredentialApp by the commands: checked, imported, listed, ended, erased, and its value in no output and no file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.static_credential import unpacked
from oauthbroker.store.migration.archive import Export, KeysChangedError
from oauthbroker.testing import IdentityProvider
from oauthbroker.wiring.backup import EXPORTS
from oauthbroker.wiring.opening import open_running
from tests.kit.age_identity import identity_file
from tests.kit.cli import Desk

VALUE, NEXT = "key-of-the-meter-00017", "key-of-the-meter-00018"
PAGE = "https://meter.example/keys"
APP = f"""\
apiVersion: agents.example.io/v1alpha1
kind: CredentialApp
metadata: {{name: meter}}
spec:
  subjectMode: global
  fields: {{apiKey: {{title: API key, pattern: "key-[a-z0-9-]+", obtain: "{PAGE}"}}}}
  inject: {{bearer: "{{apiKey}}"}}
  api: {{hosts: [api.meter.example]}}
  life: {{days: 90}}
"""
LINE = {"app": "CredentialApp/meter", "subject": "team:1", "credential": {"apiKey": VALUE}, "next": {"apiKey": NEXT}}


@pytest.fixture
def stocked(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    desk.write("meter", APP)
    done = desk.type("grants", "import", "-", "--json", stdin=json.dumps(LINE))
    assert (0, "") == (done.code, done.err)
    assert {"imported": 1, "unverified": 1} == {name: json.loads(done.out)[name] for name in ("imported", "unverified")}
    return desk


def holding(folder: Path, *values: str) -> list[str]:
    """The files below a folder that hold one of the values."""
    sought = [value.encode() for value in values]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(each in path.read_bytes() for each in sought)]


def kept(desk: Desk) -> list[dict[str, str]]:
    """The values of both slots, as a broker on this configuration reads them."""

    async def read() -> list[dict[str, str]]:
        async with open_running("config", env={}, clock=SystemClock(), background=False) as running:
            versioned = await running.parts.repository.grant(GrantKey("meter", "team:1", ""))
            assert versioned is not None
            assert versioned.record.token is not None
            slots = versioned.record.token.access_token, versioned.record.next_credential
            return [unpacked(each) for each in slots if each is not None]

    return asyncio.run(read())


def exports_beside_a_rotation(desk: Desk, recipient: str) -> None:
    """See an export begun again after each change of the keyring, and refused when they do not end."""
    real, changes = Export.lines, iter(range(0))

    def lines(export: Export) -> Iterator[bytes]:
        yield from real(export)
        if next(changes, None) is not None:
            raise KeysChangedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Export, "lines", lines)
        changes = iter(range(EXPORTS - 1))
        assert 0 == desk.type("store", "export", "again.age", "--recipient", recipient).code
        changes = iter(range(EXPORTS))
        refused = desk.type("store", "export", "never.age", "--recipient", recipient)
        assert (2, True) == (refused.code, "export again after the rotation" in refused.err)
        assert {"store.age", "again.age"} == {each.name for each in desk.folder.glob("*.age")}


def test_a_key_survives_a_new_seed_a_move_and_a_backup(stocked: Desk) -> None:
    """Both slots, and no file on the way has a value."""
    both = [LINE["credential"], LINE["next"]]
    for words in (("rotate", "--wait", "0"), ("reseal",), ("retire", "--yes")):
        assert 0 == stocked.type("keys", *words).code
    assert both == kept(stocked)
    assert 0 == stocked.type("store", "copy", "store", "moved", "--cut-over").code
    broker = (stocked.folder / "config" / "broker.yaml").read_text()
    stocked.write("broker", broker.replace("../store", "../moved"))
    assert both == kept(stocked)
    identity, recipient = identity_file(stocked)
    assert 0 == stocked.type("store", "export", "store.age", "--recipient", recipient).code
    exports_beside_a_rotation(stocked, recipient)
    stocked.write("broker", broker.replace("../store", "../restored"))
    assert 0 == stocked.type("store", "import", "store.age", "--identity", identity).code
    assert 0 == stocked.type("store", "accept-restore", "--yes").code
    assert both == kept(stocked)
    assert [] == holding(stocked.folder, VALUE, NEXT)


def test_the_check_lists_the_fields_their_place_and_the_check(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    desk.write("meter", APP)
    said = desk.type("check").out
    for words in (
        f"typed        apiKey (API key, key-[a-z0-9-]+), from {PAGE}",
        "carried in   headers Authorization",
        "sent to      api.meter.example",
        "checked by   nothing: a typed credential counts as unverified",
        "ends after   90 days",
        "comes by     `oauthbroker grants import`",
    ):
        assert words in said
    named = APP.replace("global", "user").replace(
        "  life:", "  verify: {path: /me, account: 'meter:user:{id}'}\n  life:"
    )
    desk.write("meter", named)
    assert "account      meter:user:{id} (answer of verify)" in desk.type("check").out
    desk.write("meter", APP)
    [app] = [each for each in json.loads(desk.type("check", "--json").out)["apps"] if each["name"] == "meter"]
    assert ("CredentialApp", 90, None) == (app["kind"], app["credential"]["days"], app["credential"]["verify"])


def test_the_check_says_what_comes_from_the_configuration(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    values = "  values: {apiKey: {valueFrom: {env: METER_KEY}}}\n"
    desk.write("meter", APP.replace("  life: {days: 90}\n", values))
    said = desk.type("check").out
    assert "comes from   values, for each team" in said
    assert not re.search("typed|comes by|link could not", said)
    user = "subjectMode: user\n  fallback: team\n  owner: {binding: localOperator}"
    desk.write("meter", APP.replace("  life: {days: 90}\n", values).replace("subjectMode: global", user))
    said = desk.type("check").out
    assert "typed        apiKey" in said
    assert "fallback     values, for a user without one" in said


def test_no_command_shows_a_value_and_no_file_holds_one(stocked: Desk) -> None:
    listed: list[dict[str, Any]] = json.loads(stocked.type("grants", "list", "--json").out)
    [grant] = listed
    assert "credential next" == grant["slots"]
    assert "key: credential next" in stocked.type("grants", "list").out
    assert "refresh" not in stocked.type("grants", "list").out
    outputs = [
        stocked.type(*words)
        for words in (
            ("grants", "list"),
            ("grants", "show", grant["grantId"]),
            ("grants", "show", grant["grantId"], "--json"),
            ("doctor",),
            ("audit", "tail", "--json"),
            ("check", "--json"),
        )
    ]
    assert not re.search("key-of-the-meter", repr(outputs))
    assert '"slots": "credential next"' in outputs[4].out
    assert [] == holding(stocked.folder, VALUE, NEXT)


def test_ending_one_says_that_it_still_works_and_where_to_end_it(stocked: Desk) -> None:
    done = stocked.type("grants", "revoke", "--all", "--app", "CredentialApp/meter", "--yes")
    assert 0 == done.code
    assert "meter team:1: ended here\n" in done.out
    assert f"the credential still works at the provider until it is ended there: {PAGE}" in done.out


def test_erasing_a_subject_leaves_no_record(stocked: Desk) -> None:
    done = stocked.type("grants", "erase", "--subject", "team:1", "--yes", "--json")
    assert 0 == done.code, done
    assert [] == json.loads(stocked.type("grants", "list", "--json").out)


def test_a_token_command_refuses_with_the_way_to_do_it(stocked: Desk) -> None:
    refused = stocked.type("token", "CredentialApp/meter")
    assert refused.code != 0
    assert VALUE not in refused.out
