"""Presets of static credentials as data: each says how it is known. tests/story/test_credential_presets.py plays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.credentials.credential_preset import CredentialPreset
from tests.unit.config.bundles import HEAD, problems_in, write

ALL = [pytest.param(preset, id=name) for name, preset in credential_presets().items()]
BROKER = f'{HEAD}kind: Broker\nmetadata: {{name: broker}}\nspec: {{publicBaseUrl: "http://127.0.0.1:8484"}}\n'
UNCHECKED = {"workday"}  # no request that every tenant answers


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


def test_a_parameter_of_the_host_that_lacks_is_one_problem(tmp_path: Path):
    app = f"{HEAD}kind: CredentialApp\nmetadata: {{name: a}}\nspec: {{provider: jira, subjectMode: user}}\n"
    (problem,) = problems_in(write(tmp_path, broker=BROKER, app=app))
    assert "spec.params.site" == problem.path


def test_an_app_with_hosts_of_its_own_keeps_the_check_that_has_one(tmp_path: Path):
    """Another preset's check would go to these hosts. A service of AWS tells who a key is, wherever it is used."""
    apps = "".join(
        f"{HEAD}kind: CredentialApp\nmetadata: {{name: {name}}}\nspec:\n  provider: {name}\n  subjectMode: user\n"
        f"  params: {params}\n  api: {{hosts: [files.acme.example]}}\n  owner: {{binding: {binding}}}\n---\n"
        for name, params, binding in [
            ("aws", "{service: s3, region: eu-west-1}", "providerIdentity"),
            ("openai", "{}", "localOperator"),
        ]
    )
    found = {name: draft.app.credential for name, draft in load(write(tmp_path, broker=BROKER, apps=apps)).apps.items()}
    assert found["openai"] is not None
    assert found["aws"] is not None
    assert found["openai"].verification is None
    assert found["aws"].verification is not None
    assert "sts.eu-west-1.amazonaws.com" == found["aws"].verification.host
