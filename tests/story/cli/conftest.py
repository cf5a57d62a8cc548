"""A folder where commands are typed, and a provider that goes by the real clock, as the commands do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import Desk


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture
def desk(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:
    return Desk(tmp_path, canaries, monkeypatch, capsys)
