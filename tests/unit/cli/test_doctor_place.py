"""The doctor looks at the files that open the store, wherever the configuration names them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oauthbroker.cli.doctor.place import guarded, permissions
from oauthbroker.diagnostics.findings import Finding


@pytest.mark.parametrize("mode, named", [(0o600, False), (0o640, False), (0o644, True)])
async def test_a_token_file_that_every_user_can_read_is_named(mode: int, named: bool, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("s.token")
    file.chmod(mode)
    found = await permissions(str(tmp_path / "store"), [str(file), str(tmp_path / "missing")])
    warnings = [(each.check, each.about) for each in found if each.severity == "warning"]
    assert ([("permissions", str(file))] if named else []) == warnings


@pytest.mark.parametrize("path", ["/srv/store/audit.jsonl", b"/srv/store/audit.jsonl"])
async def test_a_check_that_the_system_stops_names_the_path(path: str | bytes):
    async def refused() -> list[Finding]:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    (found,) = await guarded("audit", refused)
    assert ("failure", "/srv/store/audit.jsonl") == (found.severity, found.about)
    assert "EROFS" in found.text
