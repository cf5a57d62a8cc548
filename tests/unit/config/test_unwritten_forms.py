"""What a folder does not write costs no validator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker.config.written import resource_specs
from oauthbroker.config.written.fields import Strict
from oauthbroker.config.written.resource_specs import models_in
from tests.kit.written_forms import SPECS
from tests.unit.config.bundles import APP, BROKER, KEYED, edited, problems_in, write

BUILT = """
import sys
from oauthbroker.config import load
from oauthbroker.config.written.fields import Strict

def below(model):
    for each in model.__subclasses__():
        yield each
        yield from below(each)

load(sys.argv[1])
print(*sorted({each.__name__ for each in below(Strict) if each.__pydantic_complete__}))
print("oauthbroker.config.written.credential_app_spec" in sys.modules)
"""


def forms() -> list[type[Strict]]:
    """Return every form of our resources, and those inside them."""
    found: dict[type[Strict], None] = {}
    waiting: list[type] = [*SPECS.values(), resource_specs.Header]
    while waiting:
        model = waiting.pop()
        if issubclass(model, Strict) and model not in found:
            found[model] = None
            waiting += [inner for info in model.model_fields.values() for inner in models_in(info.annotation)]
    return list(found)


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.__name__)
def test_an_unwritten_form_is_one_without_members(form: type[Strict]) -> None:
    assert form.empty() == form.model_validate({})


def built(folder: Path) -> list[str]:
    """Load a folder in a new process. Return the forms whose validators it built, and whether it has imported the form
    of a CredentialApp."""
    ran = subprocess.run([sys.executable, "-c", BUILT, str(folder)], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_a_folder_builds_the_validators_of_its_resources(tmp_path: Path) -> None:
    folder = write(tmp_path, broker=BROKER, acme=APP)
    assert ["BrokerSpec Header OAuthAppSpec", "False"] == built(folder)


def test_a_rare_part_has_its_validator_once_it_is_written(tmp_path: Path) -> None:
    folder = write(
        tmp_path, broker=BROKER + "  pages: {name: Acme}\n", acme=APP + "  quirks: {scopeParam: user_scope}\n"
    )
    assert ["BrokerSpec Header OAuthAppSpec PagesSpec QuirksSpec", "False"] == built(folder)


def test_a_credential_app_is_read_by_a_form_of_its_own(tmp_path: Path) -> None:
    local = edited(BROKER, ("https://broker.example", "http://127.0.0.1:8420"))
    folder = write(tmp_path, broker=local, meter=KEYED)
    assert ["BrokerSpec CredentialAppSpec Header", "True"] == built(folder)


def test_a_problem_within_a_rare_part_has_its_place(tmp_path: Path) -> None:
    folder = write(tmp_path, broker=BROKER + "  pages: {name: 7}\n", acme=APP + "  quirks: {scopeParam: a b}\n")
    found = {each.path: each.what for each in problems_in(folder)}
    assert {"spec.pages.name": "not text", "spec.quirks.scopeParam": "not a member's name"} == found
