"""The commands of docs/how-to/rotate-keys.md, end-grants.md, backup-and-restore.md and move-the-store.md have the effect that
is printed, on a store with a user's grant. Only places, names of users and a yes to a question are other ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.age_identity import identity_file
from tests.kit.cli import Desk
from tests.kit.docs import code_blocks

pytestmark = pytest.mark.slow
ASKS = {"keys retire", "grants revoke", "grants erase", "store accept-restore"}


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    """One that goes by the real clock, as the commands do."""
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture
def desk(
    tmp_path: Path,
    idp: IdentityProvider,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> Desk:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return desk


def typed(desk: Desk, page: str, block: int, changes: Mapping[str, str] | None = None) -> str:
    """Type each command of a block as it is printed, with other words where the page has an example. Return all output."""
    printed = ""
    for line in code_blocks(f"docs/how-to/{page}.md", "sh")[block].splitlines():
        found = re.match(r"(?:KEY=\$\()?oauthbroker (.+?)\)?(?: +#.*)?$", line)
        if found is None:
            continue
        words = [(changes or {}).get(word, word) for word in found[1].split()]
        if " ".join(words[:2]) in ASKS and "--dry-run" not in words:
            words.append("--yes")
        done = desk.type(*words)
        assert 0 == done.code, (words, done.err)
        if words[:2] in (["api-keys", "create"], ["api-keys", "rotate"]):
            desk.canaries.add(done.out.strip(), "API key")
        printed += done.out + done.err
    assert printed
    return printed


def grants(desk: Desk) -> str:
    done = desk.type("grants", "list")
    assert 0 == done.code, done.err
    return done.out


def test_the_seed_and_the_keys_of_the_api_are_rotated(desk: Desk) -> None:
    desk.canaries.may_show("API key")
    before = grants(desk)
    typed(desk, "rotate-keys", 0)
    assert "active" in desk.type("keys", "status").out
    assert before == grants(desk), "every record was sealed anew"
    listed = typed(desk, "rotate-keys", 2)
    assert ("planner" in listed, "oncall" in listed) == (True, True)


def test_a_user_leaves_and_is_erased(desk: Desk, idp: IdentityProvider) -> None:
    subject = f"idp:user:{idp.account('alice').sub}"
    example = {"slack:user:T111:U234567": subject, "slack-bot": "mail"}
    assert subject in grants(desk)
    typed(desk, "end-grants", 0, example)
    assert "revoked" in grants(desk)
    typed(desk, "end-grants", 1, example)
    assert f"Nothing is kept of {subject}." in typed(desk, "end-grants", 1, example)
    assert subject not in grants(desk)


def test_a_store_comes_back_from_its_archive(desk: Desk, idp: IdentityProvider) -> None:
    subject = f"idp:user:{idp.account('alice').sub}"
    identity, recipient = identity_file(desk)
    example = {
        "/backup/2026-07-01.age": str(desk.folder / "a.age"),
        "age1...": recipient,
        "identity.txt": identity,
    }
    typed(desk, "backup-and-restore", 0, example)
    shutil.rmtree(desk.folder / "store")
    typed(desk, "backup-and-restore", 2, example)
    assert subject in grants(desk)


def test_a_store_moves(desk: Desk) -> None:
    before = grants(desk)
    example = {
        "/var/lib/oauthbroker": str(desk.folder / "store"),
        "env:OAUTHBROKER_DATABASE_URL": str(desk.folder / "new"),
    }
    typed(desk, "move-the-store", 0, example)
    typed(desk, "move-the-store", 1, example)
    assert "storeClosed" in desk.type("grants", "list").err
    config = desk.folder / "config" / "broker.yaml"
    config.write_text(config.read_text("utf-8").replace("../store", "../new"), "utf-8")
    assert before == grants(desk)
