"""Presets of static credentials: each makes an app, sends its check to its first host, and says how it is known."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config import load
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.static_credential import basic_of, packed, unpacked
from oauthbroker.protocol.credential_check import CredentialChecks
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.providers.credentials import CredentialPreset, credential_presets
from tests.unit.config.bundles import BROKER, HEAD, edited, write

ALL = [pytest.param(preset, id=name) for name, preset in credential_presets().items()]
VALUES = {  # of parameters without a usual value
    "accountSid": "AC" + 32 * "0",
    "applicationId": "ABCDE01234",
    "account": "1234567_SB1",
    "host": "service5.ultipro.com",
    "hostLabel": "abcde01234",
    "region": "eu-central-1",
}
UNCHECKED = {"aws", "workday"}  # no request that every service or tenant answers


def params_of(preset: CredentialPreset) -> dict[str, str]:
    return {name: VALUES.get(name, "acme") for name, param in preset.params.items() if not param.default}


@functools.cache
def apps(folder: Path) -> dict[str, OAuthApp]:
    """An app of each preset that writes nothing the preset knows. On one machine, so that a check need not name an
    account."""
    local = edited(BROKER, ("https://broker.example", "http://127.0.0.1:8420"))
    texts = [
        f"{HEAD}kind: CredentialApp\nmetadata: {{name: {name}}}\nspec:\n  provider: {name}\n  subjectMode: user\n"
        f"  owner: {{binding: localOperator}}\n  params: {json.dumps(params_of(preset))}\n"
        for name, preset in credential_presets().items()
    ]
    drafts = load(write(folder, broker=local, apps="---\n".join(texts))).apps
    return {name: draft.app for name, draft in drafts.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("presets")


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


@pytest.mark.parametrize("preset", ALL)
async def test_its_check_goes_to_the_first_host_with_every_value(preset: CredentialPreset, folder: Path):
    app = apps(folder)[preset.name]
    assert app.api.hosts, "no host"
    assert app.credential is not None
    if preset.verify is None:
        return
    sent = list[ApiRequest]()
    values = {name: f"value-of-{name}" for name in preset.fields}
    with pytest.raises(BrokerError) as caught:
        await CredentialChecks(_Refusing(sent)).owner_of(app, packed(values))  # type: ignore[arg-type]
    assert Code.CREDENTIAL_REFUSED is caught.value.code
    [request], first = sent, app.api.hosts[0]
    assert isinstance(first, ApiHost)
    assert (first.name, first.port, "https") == (request.host, request.port, request.scheme)
    assert request.path.startswith("/")
    assert "{" not in request.path + repr(request.headers)
    said = f"{request.path} {request.headers!r} {request.body!r}"
    if app.credential.placement.kind == "basic":
        texts = app.credential.placement.filled(unpacked(packed(values)))
        assert basic_of(texts) in said
    elif app.credential.placement.kind != "oauth1":  # of which secrets only sign
        assert all(value in said for value in values.values()), said


class _Refusing:
    """A transport that keeps each request and answers 401."""

    def __init__(self, sent: list[ApiRequest]) -> None:
        self._sent = sent

    async def send(self, request: ApiRequest, limits: Any) -> _Refusing:
        self._sent.append(request)
        return self

    status = 401

    async def chunks(self) -> Any:
        yield b"{}"

    async def aclose(self) -> None:
        pass
