"""docs/credential-presets.md, written from the presets: `make providers` writes it, and the test refuses a page that differs.
The page of each preset is made for the site alone (tools/site/reference/provider_pages.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from oauthbroker.cli.credential_presets import HEAD, app_yaml, row
from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.credentials.credential_preset import CredentialPreset

PAGE = Path(__file__).parents[3] / "docs" / "credential-presets.md"
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "http://127.0.0.1:8484"}
---
"""
INTRO = """\
# Presets of keys and other static credentials

Written by `make providers` from the files in `oauthbroker/providers/credentials/`; a test refuses a page that differs.

`provider: NAME` in a [CredentialApp](credentials.md) fills in its fields, where requests carry them, the hosts of the API and the
request that checks a credential before it is stored. An app's own fields override the preset; one with `fields`, `inject` or
`api.hosts` of its own takes no check of the preset. Tests play each preset against a scripted API: a wrong key, the check,
another account, and a request of a tool. [Providers](providers.md) has the presets of OAuthApps.

Where the check names an account, it is compared with the user, as OAuth accounts are. Where it names none, the app needs
`owner.binding`: `brokerLogin`, or `localOperator` on one machine. The page of each preset is behind its name; in the repository
that is its file, with the sources of its facts under `evidence`. Try an unverified fact before you rely on it.

"""


def page() -> str:
    known = list(credential_presets().values())
    return "\n".join([INTRO, *_table(_overview(known)), ""])


def _overview(known: Iterable[CredentialPreset]) -> Iterator[tuple[str, ...]]:
    yield HEAD
    for preset in known:
        name, *others = row(preset)
        yield (
            f"[`{name}`](../oauthbroker/providers/credentials/{name}.yaml)",
            *(f"`{text}`" if "{" in text or "/" in text else text for text in others),
        )


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, cells in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        if number == 0:
            yield "|" + "---|" * len(cells)


# --- tests


def test_the_page_is_up_to_date():
    assert page() == PAGE.read_text("utf-8"), "docs/credential-presets.md is old: run `make providers`"


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
    sys.stdout.write(f"wrote {PAGE.relative_to(PAGE.parents[1])}\n")
