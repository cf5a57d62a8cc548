"""Presets of static credentials as data: each says how it is known. tests/story/test_credential_presets.py plays them."""

from __future__ import annotations

import pytest

from oauthbroker.providers.credentials import CredentialPreset, credential_presets

ALL = [pytest.param(preset, id=name) for name, preset in credential_presets().items()]
UNCHECKED = {"aws", "workday"}  # no request that every service or tenant answers


def test_at_least_sixty_are_shipped_under_their_own_names():
    assert 60 <= len(ALL)
    assert {name: name for name in credential_presets()} == {
        name: preset.name for name, preset in credential_presets().items()
    }


@pytest.mark.parametrize("preset", ALL)
def test_evidence_speaks_of_facts_alone_and_notes_are_short(preset: CredentialPreset):
    paths = preset.fact_paths()
    assert set(preset.evidence) <= {*paths, *(path.partition(".")[0] for path in paths)}
    assert len(preset.notes) <= 3
    assert all(len(note.split()) <= 40 for note in preset.notes), preset.notes
    assert preset.documentation
    assert preset.verify is not None or preset.name in UNCHECKED
