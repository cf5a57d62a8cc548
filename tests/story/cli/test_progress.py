"""Every long command counts its work on stderr, and its answer on stdout stays whole."""

from __future__ import annotations

import json
from pathlib import Path

import pyrage
import pytest

from oauthbroker.cli.output import progress
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Desk

GRANTS = 3
COUNTS = {
    "keys reseal": ("records sealed anew",),
    "store copy": ("records copied",),
    "store copy --cut-over": ("records copied", "records compared"),
    "store verify": ("records verified",),
    "store export": ("records exported",),
    "store import": ("bytes of the archive opened", "bytes of the archive written", "records compared"),
    "doctor": ("checks done", "bytes of the audit log verified", "checks over the network done"),
    "audit verify": ("bytes of the audit log verified",),
    "grants import": ("grants written",),
    "grants revoke": ("grants ended here", "grants told to their provider"),
}


def lines_in(folder: Path) -> Path:
    path = folder / "lines.jsonl"
    grants = [{"app": "mail", "subject": f"idp:user:N{n}", "refreshToken": f"refresh-{n}"} for n in range(GRANTS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in grants))
    path.chmod(0o600)
    return path


def counts_of(desk: Desk, *words: str) -> list[str]:
    """Type a command whose stderr is no terminal. Return the lines there; stdout has no counts."""
    done = desk.type(*words)
    assert 0 == done.code, done.err
    assert not any(" of " in line and "%" in line for line in done.out.splitlines())
    return done.err.splitlines()


@pytest.mark.slow
def test_every_long_command_counts(desk: Desk, idp: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SELDOM", 0)
    desk.ready_to_serve(idp)
    identity = pyrage.x25519.Identity.generate()
    key = tmp_path / "identity"
    key.touch(0o600)
    key.write_text(f"{identity}\n")
    desk.canaries.excuse(key)
    seen = {"grants import": counts_of(desk, "grants", "import", str(lines_in(tmp_path)))}
    assert 0 == desk.type("keys", "rotate", "--wait", "0").code
    seen["keys reseal"] = counts_of(desk, "keys", "reseal")
    seen["store copy"] = counts_of(desk, "store", "copy", "store", "other")
    seen["store verify"] = counts_of(desk, "store", "verify")
    archive = tmp_path / "archive.age"
    seen["store export"] = counts_of(desk, "store", "export", str(archive), "-r", str(identity.to_public()))
    seen["doctor"] = counts_of(desk, "doctor")
    seen["audit verify"] = counts_of(desk, "audit", "verify")
    seen["grants revoke"] = counts_of(desk, "grants", "revoke", "--app", "mail", "--all", "--yes")
    seen["store copy --cut-over"] = counts_of(desk, "store", "copy", "store", "other", "--cut-over")
    desk.write("broker", (desk.folder / "config" / "broker.yaml").read_text().replace("../store", "../restored"))
    seen["store import"] = counts_of(desk, "store", "import", str(archive), "-i", str(key))
    for command, counts in COUNTS.items():
        for what in counts:
            ends = [line for line in seen[command] if f" {what} (100 %)" in line]
            assert ends, (command, what, seen[command])
    assert f"{GRANTS} of {GRANTS} grants written (100 %)" in seen["grants import"][-1]


def test_with_json_a_pipe_gets_no_counts(desk: Desk, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SELDOM", 0)
    desk.ready_to_serve(idp)
    for words in (["audit", "verify"], ["store", "verify"], ["doctor", "--offline"]):
        done = desk.type(*words, "--json")
        assert "%" not in done.err
        json.loads(done.out)
