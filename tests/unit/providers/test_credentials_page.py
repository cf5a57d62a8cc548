"""docs/credential-presets.md, written from the presets: `make providers` writes it, and the test refuses another page."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.cli.credential_presets import HEAD, app_yaml, row
from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.providers.credentials import CredentialPreset, credential_presets

PAGE = Path(__file__).parents[3] / "docs" / "credential-presets.md"
INTRO = """\
# Presets of static credentials

Written by `make providers` from the files in `oauthbroker/providers/credentials/`; a test refuses a page that differs.

A preset supplies what a [CredentialApp](credentials.md) leaves out: the fields that a person types, where requests carry them, and the request that
checks them. `oauthbroker providers show NAME` prints one with the source of every fact and an app to start from. An app without an
account needs `owner.binding`, or a `verify.account` of its own. [Providers](providers.md) has the presets of OAuthApps.

"""
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "http://127.0.0.1:8484"}
---
"""


def page() -> str:
    rows = [HEAD, ("---",) * len(HEAD), *map(row, credential_presets().values())]
    return INTRO + "".join(f"| {' | '.join(_cell(each) for each in cells)} |\n" for cells in rows)


def _cell(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`{text}`" if any(mark in text for mark in "{/<") else text


def test_the_page_is_what_the_presets_say() -> None:
    assert page() == PAGE.read_text("utf-8"), "run `make providers`"


@pytest.mark.parametrize("preset", credential_presets().values(), ids=list(credential_presets()))
def test_the_app_to_start_from_is_valid(preset: CredentialPreset, tmp_path: Path) -> None:
    """As printed, with localOperator on loopback. A parameter without a usual value is still to be written."""
    text = BROKER + app_yaml(preset).replace("brokerLogin", "localOperator")
    tmp_path.joinpath("app.yaml").write_text(text, "utf-8")
    if "..." not in text:
        assert preset.name in load(tmp_path).apps
        return
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path)
    assert all(it.path.startswith(("spec.params", "spec.api")) for it in refused.value.problems)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
