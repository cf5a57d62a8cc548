"""Presets are read one by one, when they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.core.shipped_yaml import shipped_yaml
from oauthbroker.providers import preset_files, presets
from oauthbroker.providers.preset import Preset


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read."""
    names: list[str] = []

    def reading(file: Any) -> Any:
        names.append(file.name)
        return shipped_yaml(file)

    monkeypatch.setattr(preset_files, "shipped_yaml", reading)
    return names


def test_one_preset_reads_one_file_once(read: list[str]):
    known = preset_files.Presets("oauthbroker.providers", lambda: Preset)
    assert "slack" == known["slack"].name
    assert known["slack"] is known["slack"]
    assert ["slack.yaml"] == read


def test_names_and_unknown_names_read_nothing(read: list[str]):
    known = preset_files.Presets("oauthbroker.providers", lambda: Preset)
    assert known.get("../slack") is None
    assert known.get("unheard-of") is None
    assert "slack" in list(known)
    assert len(known) == len(list(known))
    assert sorted(known) == list(known)
    assert [] == read


def test_a_file_is_named_as_its_preset():
    assert {name: name for name in presets()} == {name: preset.name for name, preset in presets().items()}
