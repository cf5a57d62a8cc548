"""12.5.3: nothing secret lies on disk in the clear, and nothing secret is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oauthbroker.testing import Canaries
from tests.kit.running_broker import ALICE, Harness, tree, turn
from tests.spec.kit import secrets_of


@pytest.mark.rule("12.5.3-1")
async def test_1_no_secret_of_any_record_lies_on_disk_in_any_spelling(
    filed: Harness, tmp_path: Path, canaries: Canaries
) -> None:
    """Tokens, verifier, state, nonce and ticket are swept for: plain, base64, hex, escaped, in contents and names."""
    await filed.connected("mail")
    await filed.ask_link("files")
    there = await secrets_of(filed)
    kinds = {kind.rpartition(" ")[0] for kind in there}
    assert {"access token", "refresh token", "code verifier", "state", "nonce", "ticket"} == kinds
    for kind, secret in there.items():
        canaries.add(secret, kind.rpartition(" ")[0])
    files = tree(tmp_path / "store")
    assert len(files) > 4
    for name, content in files.items():
        assert [] == canaries.search(name, "a name") + canaries.search(content, name)


@pytest.mark.rule("12.5.3-1")
async def test_1_the_connected_account_is_not_readable_either(filed: Harness, tmp_path: Path) -> None:
    """The whole record is sealed, not its secret members alone; names are keyed hashes."""
    await filed.connected("mail")
    for name, content in tree(tmp_path / "store").items():
        for word in (ALICE, "U234567", "OAuthGrantRecord", "scopesGranted", "planner"):
            assert word not in name
            assert word.encode() not in content, name


@pytest.mark.rule("12.5.3-1")
async def test_1_a_sealed_client_secret_is_sealed_too(filed: Harness, tmp_path: Path, canaries: Canaries) -> None:
    """What operators put into the store is no better known to the disk than what providers gave."""
    await filed.broker.secrets.put("slack", "client_secret", canaries.mint("client secret"))
    assert [("slack", "client_secret")] == await filed.broker.secrets.names()
    assert [] == [find for content in tree(tmp_path).values() for find in canaries.search(content, "a file")]


@pytest.mark.rule("12.5.3-2")
@pytest.mark.case("91")
async def test_2_logs_events_blocks_audit_and_lists_hold_no_secret(harness: Harness, canaries: Canaries) -> None:
    """Everything a runtime may show to a model or keep in a log, over a whole story with a success and a refusal."""
    asked = await harness.ask_link("files")
    for kind, secret in (await secrets_of(harness)).items():
        canaries.add(secret, kind.rpartition(" ")[0])
    block = await harness.broker.pending(turn())
    assert [] == canaries.search(json.dumps(block), "the block", allow=["ticket"])
    await harness.connected("mail")
    await harness.connect(asked, "mallory")
    for kind, secret in (await secrets_of(harness)).items():
        canaries.add(secret, kind.rpartition(" ")[0])
    said = {
        "events": json.dumps(await harness.events(count=2)),
        "log": harness.log.getvalue(),
        "audit": repr(harness.audit.entries),
        "grants": repr([summary.to_json() async for summary in harness.broker.grants.list()]),
        "broker": repr(harness.broker) + repr(harness.broker.bundle),
    }
    assert all(said.values())
    assert [] == [find for where, text in said.items() for find in canaries.search(text, where)]
