"""docs/configuration.md, settings.md and quirks.md are complete, and their examples load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from oauthbroker.config import load
from oauthbroker.config.key_file import KEY_FILE_ENV
from oauthbroker.config.reading import files
from oauthbroker.config.reading.yaml_reader import MAX_DEPTH, MAX_PARSED_DEPTH
from oauthbroker.config.written.broker_spec import AdvancedSpec, LimitsSpec
from oauthbroker.config.written.resource_specs import models_in
from oauthbroker.model.apps import Binding
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.providers import presets
from tests.kit.written_forms import SPECS

DOCS = Path(__file__).parents[3] / "docs"
PACKAGE = DOCS.parent / "oauthbroker"
PAGE = "".join(DOCS.joinpath(f"{name}.md").read_text("utf-8") for name in ("configuration", "settings", "quirks"))


def fields(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        found |= {info.alias or name}.union(*(fields(inner) for inner in models_in(info.annotation)))
    return found


def attributes(model: type[BaseModel]) -> set[str]:
    inner = [each for info in model.model_fields.values() for each in models_in(info.annotation)]
    own = (
        set(model.model_fields)
        if model.__module__.startswith(SPECS["OAuthApp"].__module__.rpartition(".")[0])
        else set()
    )
    return own.union(*map(attributes, inner))


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_is_documented(kind: str):
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    words = set(re.findall(r"[A-Za-z0-9]+", " ".join(re.findall(r"`([^`]+)`", prose))))
    missing = fields(SPECS[kind]) - words
    assert not missing, f"add a row for each of {missing} to docs/configuration.md, settings.md or quirks.md"


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_is_read(kind: str):
    """By code beyond the package that has the written form."""
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "written"]
    read = set(re.findall(r"\.(\w+)", "".join(path.read_text("utf-8") for path in files)))
    unread = attributes(SPECS[kind]) - read
    assert not unread, f"no code reads {unread}: use each, or remove it from oauthbroker/config/written/"


def test_every_limit_is_documented_with_its_default():
    for name, info in (LimitsSpec.model_fields | AdvancedSpec.model_fields).items():
        assert re.search(rf"^\| `{info.alias}` \|.*\| {getattr(Limits(), name):g} \|$", PAGE, re.MULTILINE), name


def test_the_numbers_on_the_page_are_the_numbers_in_the_code():
    assert (
        f"over {files.MAX_BYTES // 2**20} MB, bundles over {files.MAX_TOTAL_BYTES // 2**20} MB or {files.MAX_FILES}"
        in PAGE
    )
    assert f"deeper than {MAX_DEPTH} levels" in PAGE
    assert f"a limit of {MAX_PARSED_DEPTH} levels" in PAGE
    assert f"| `{Settings().listen_host}` |\n| `listen.port` | the port there | `{Settings().listen_port}` |" in PAGE
    assert f"`{KEY_FILE_ENV}`" in PAGE


@pytest.mark.parametrize(
    "page", [*sorted(DOCS.glob("flow-*.md")), DOCS / "subjects-and-owners.md"], ids=lambda page: str(page.stem)
)
def test_the_apps_on_a_page_about_a_flow_or_owners_load(page: Path, tmp_path: Any):
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
        tmp_path.joinpath(f"{number}.yaml").write_text(block, "utf-8")
        assert load(tmp_path).apps


def test_what_the_page_shows_loads(tmp_path: Any):
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)):
        tmp_path.joinpath(f"{number}.yaml").write_text(block, "utf-8")
    loaded = load(tmp_path)
    assert {"slack-bot", "company-sso", "billing", "acme", "linkedin"} == set(loaded.apps)
    assert {"Tool/slack", "Tool/slack:post"} == set(loaded.tools)


def test_the_page_on_subjects_spells_accounts_as_the_presets_do():
    rows = _table_of_owners("| preset | `identity.global` | `identity.user` |")
    assert len(rows) > 5
    for name, *cells in rows:
        known = presets()[name.strip("`")].identity
        for cell, rule in zip(cells, (known.global_, known.user), strict=True):
            assert cell == (f"`{rule.template}`" if rule is not None and rule.template else "write one"), name


def test_the_page_on_subjects_promises_the_bindings_that_exist():
    rows = _table_of_owners("| `owner.binding` | confirmed by | for |")
    assert set(get_args(Binding)) == {row[0].split("`")[1] for row in rows}


SUBJECTS = DOCS.joinpath("subjects-and-owners.md").read_text("utf-8")


def _table_of_owners(head: str) -> list[list[str]]:
    _, found, rest = SUBJECTS.partition(head)
    assert found, head
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
