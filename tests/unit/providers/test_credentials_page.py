"""docs/credential-presets.md, written from the presets: `make providers` writes it, and the test refuses a page that differs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from oauthbroker.cli.credential_presets import HEAD, app_yaml, row
from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.providers.credentials import CredentialPreset, credential_presets

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
`owner.binding`: `brokerLogin`, or `localOperator` on one machine. (?) marks a fact without a written source: try it before
you rely on it.

"""


def page() -> str:
    known = list(credential_presets().values())
    parts = [INTRO, *_table(_overview(known)), ""]
    for preset in known:
        parts += [*_section(preset), ""]
    return "\n".join(parts)


def _overview(known: Iterable[CredentialPreset]) -> Iterator[tuple[str, ...]]:
    yield HEAD
    for preset in known:
        name, *others = row(preset)
        yield (
            f"[`{name}`](#{_anchor(preset)})",
            *(f"`{text}`" if "{" in text or "/" in text else text for text in others),
        )


def _section(preset: CredentialPreset) -> Iterator[str]:
    yield f"### {preset.title}"
    yield ""
    yield f"`provider: {preset.name}`, [documentation](https://{preset.documentation})"
    yield ""
    yield from _table(_rows(preset))


def _rows(preset: CredentialPreset) -> Iterator[tuple[str, ...]]:
    yield "what", "", "learnt from"
    for name, param in preset.params.items():
        usual = f"; {param.default} if it is left out" if param.default else ""
        yield _row(preset, f"params.{name}", f"`params.{name}`", f"{param.description}{usual}")
    for name, field in preset.fields.items():
        form = f", like `{field.example}`" if field.example else ""
        where = f", from <{field.obtain}>" if field.obtain else ""
        yield _row(preset, f"fields.{name}", f"field `{name}`", f"{field.title}{form}{where}")
    inject = preset.inject.model_dump(by_alias=True, exclude_unset=True)
    yield _row(preset, "inject", "requests carry", f"`{_flow(inject)}`")
    yield _row(preset, "apiHosts", "hosts of the API", " ".join(f"`{host}`" for host in preset.api_hosts))
    if preset.verify is not None:
        asked = preset.verify
        more = asked.model_dump(by_alias=True, exclude_unset=True, include={"headers", "body"})
        text = f"`{asked.method} {asked.path}`{f' with `{_flow(more)}`' if more else ''}"
        names = f"; it names `{asked.account}`" if asked.account else "; it names no account"
        refused = "".join(f"; {status} means a wrong one, too" for status in asked.refused)
        yield _row(preset, "verify", "checked by", text + names + refused)
    for index, note in enumerate(preset.notes):
        yield _row(preset, f"notes.{index}", "note", note)


def _row(preset: CredentialPreset, path: str, label: str, text: str) -> tuple[str, ...]:
    source = preset.source(path)
    return label, text + (" (?)" if source.startswith("unverified") else ""), source


def _flow(data: object) -> str:
    return yaml.safe_dump(data, default_flow_style=True, width=1000, sort_keys=False).strip()


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, cells in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        if number == 0:
            yield "|" + "---|" * len(cells)


def _anchor(preset: CredentialPreset) -> str:
    return re.sub(r"[^\w -]", "", preset.title.lower()).replace(" ", "-")


# --- tests


def test_the_page_is_up_to_date():
    """Run `make providers` and commit docs/credential-presets.md."""
    assert page() == PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", credential_presets())
def test_every_fact_has_its_row_with_its_source_and_its_doubt(name: str):
    preset = credential_presets()[name]
    rows = list(_rows(preset))[1:]
    shown = [path for path in preset.fact_paths() if path not in {"apiBasePath", "life"}]
    assert sorted(map(preset.source, shown)) == sorted(source for *_, source in rows)
    assert all(text.endswith(" (?)") == source.startswith("unverified") for _, text, source in rows)


def test_every_preset_has_an_anchor_of_its_own():
    assert len(credential_presets()) == len({_anchor(it) for it in credential_presets().values()})


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
