"""What a folder does not write costs no validator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker.config.written import resource_specs
from oauthbroker.config.written.fields import Strict
from oauthbroker.config.written.resource_specs import SPECS, models_in
from tests.unit.config.bundles import APP, BROKER, write

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


def test_a_folder_builds_the_validators_of_its_resources(tmp_path: Path) -> None:
    folder = write(tmp_path, broker=BROKER, acme=APP)
    ran = subprocess.run([sys.executable, "-c", BUILT, str(folder)], capture_output=True, text=True, check=True)
    assert "BrokerSpec Header OAuthAppSpec" == ran.stdout.strip()
