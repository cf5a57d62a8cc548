"""A framework that is missing, or of another version, is named with the command that helps."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import Any

import pytest

import oauthbroker.integrations
from oauthbroker.integrations import UnfitFramework, versions
from oauthbroker.integrations.versions import RANGES, check_versions, numbers
from tests.kit.docs import page_text

EXTRAS = tomllib.loads(page_text("pyproject.toml"))["project"]["optional-dependencies"]
ADAPTERS: Any = {each: vars(oauthbroker.integrations)["_PLACES"][each] for each in versions.RANGES}


def spelled(package: str, first: versions.Version, beyond: versions.Version) -> str:
    return f"{package}>={'.'.join(map(str, first))},<{'.'.join(map(str, beyond))}"


@pytest.mark.parametrize("extra", RANGES)
def test_the_extra_of_a_framework_installs_the_versions_that_its_adapter_takes(extra):
    wanted = {spelled(package, *bounds) for package, bounds in RANGES[extra].items()}
    assert wanted == set(EXTRAS[extra.replace("_", "-")])


def test_every_adapter_has_its_versions():
    assert set(ADAPTERS) == set(RANGES)


@pytest.mark.case("144")
@pytest.mark.parametrize("extra", RANGES)
@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "{package} is not installed"),
        ("0.9", "{package} 0.9 is installed"),
        ("99.0.1", "{package} 99.0.1 is installed"),
        ("unreadable", "{package} unreadable is installed"),
    ],
)
def test_a_version_out_of_range_is_refused_with_the_range_and_the_command(extra, found, says, monkeypatch):
    monkeypatch.setattr(versions, "_installed", lambda _: found)
    package, bounds = next(iter(RANGES[extra].items()))
    with pytest.raises(UnfitFramework) as refused:
        check_versions(extra)
    assert says.format(package=package) in str(refused.value)
    assert spelled(package, *bounds) in str(refused.value)
    assert f'pip install "oauthbroker[{extra.replace("_", "-")}]"' in str(refused.value)


@pytest.mark.parametrize("extra", RANGES)
def test_the_first_version_of_a_range_fits(extra, monkeypatch):
    firsts = {package: ".".join(map(str, first)) for package, (first, _) in RANGES[extra].items()}
    monkeypatch.setattr(versions, "_installed", firsts.get)
    check_versions(extra)


@pytest.mark.parametrize(
    ("text", "release"), [("1.2.22", (1, 2, 22)), ("2.0rc1", (2, 0)), ("1.2.post1", (1, 2)), ("x", ())]
)
def test_the_numbers_of_a_version_are_its_release(text, release):
    assert release == numbers(text)


@pytest.mark.case("144")
@pytest.mark.parametrize(("extra", "name"), [(extra, min(names)) for extra, names in ADAPTERS.items()])
def test_the_public_name_of_an_adapter_is_refused_before_its_framework_is_imported(extra, name, monkeypatch):
    monkeypatch.setattr(versions, "_installed", lambda _: None)
    with pytest.raises(UnfitFramework):
        getattr(oauthbroker.integrations, name)


def test_the_folder_imports_no_framework_until_an_adapter_is_used():
    code = "import sys, oauthbroker.integrations as it; it.pause; it.resume; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"langgraph", "langchain", "langchain_core", "pydantic_ai", "agents", "google.adk"} & set(loaded)


def test_a_name_that_the_plugin_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="unknown"):
        _ = oauthbroker.integrations.unknown  # type: ignore[attr-defined]
