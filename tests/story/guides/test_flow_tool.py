"""docs/tutorials/flow-tool.md, typed into shells: what it prints is what they print, but for the ids of runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from oauthbroker.testing import Canaries
from tests.kit.cli import environment
from tests.kit.docs_shell import blocks
from tests.kit.shims import with_shims

pytestmark = pytest.mark.slow
PAGE = "docs/tutorials/flow-tool.md"
INSTALL = 'pip install "oauthbroker[flowtools]"\n'  # the package is that of this checkout


def typed(folder: Path, block: str) -> str:
    """Type a block into a shell in a folder, and return what it prints."""
    env = environment(PATH=with_shims(folder), XDG_DATA_HOME=str(folder / "share"))
    done = subprocess.run(
        ["bash", "-c", block], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    return re.sub(r"\b[0-9a-f]{32}\b", "RUN", done.stdout + done.stderr)


def test_a_large_payment_waits_for_a_person_and_is_refunded_when_a_later_step_fails(
    tmp_path: Path, canaries: Canaries
) -> None:
    make, deploy, sell, decide = blocks("sh", page=PAGE)
    deployed, stopped, refunded = (re.sub(r"\b[0-9a-f]{32}\b", "RUN", text) for text in blocks("", page=PAGE))
    [tool] = blocks("json", page=PAGE)
    assert INSTALL in make
    typed(tmp_path, make.replace(INSTALL, ""))
    shop = tmp_path / "shop"
    canaries.excuse(shop / "keys" / "broker.kek")
    (shop / "tools" / "sellOrder.json").write_text(tool, "utf-8")
    assert deployed == typed(shop, deploy)
    assert stopped in typed(shop, sell)
    find, *_ = decide.splitlines()
    assert "its own caller cannot approve a run" in typed(shop, f"{find}\noauthbroker flow approve $run --by Ada")
    assert refunded in typed(shop, decide)
    with_phone = sell.replace("A-2001", "A-2002").replace("700}", '70, "phone": "+49 30 1"}')
    assert ": succeeded" in typed(shop, with_phone)
