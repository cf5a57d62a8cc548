"""`read_resources`: the resources of one plug-in, without a Broker resource."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError
from oauthbroker.plugins import PluginResources, read_resources
from tests.unit.config.bundles import APP, BROKER, HEAD, write

HOTEL = HEAD + "kind: ActionSchema\nmetadata: {name: hotel}\nspec: {actions: {BOOK: {}}}\n"
SHOP = HOTEL.replace("hotel", "shop")


def test_the_resources_of_the_plugin_are_read_in_the_order_of_the_files_and_no_others(tmp_path: Path) -> None:
    folder = write(tmp_path, a=HOTEL + "---\n" + APP, b=SHOP)
    found = read_resources(folder, "gateway")
    assert ["hotel", "shop"] == [each.name for each in found.resources]
    assert {"BOOK"} == set(found.of("ActionSchema")["hotel"].spec.actions)
    assert folder.absolute() == found.folder == read_resources(str(folder / "a.yaml"), "gateway").folder
    other = write(tmp_path / "c", broker=BROKER)
    assert PluginResources(folder=other.absolute()) == read_resources(other, "gateway")


@pytest.mark.parametrize(
    ("plugin", "text", "what"),
    [
        ("actoins", HOTEL, "no plug-in of this name is installed"),
        ("gateway", HOTEL + "---\n" + HOTEL, "this name is taken"),
        ("gateway", HOTEL.replace("BOOK: {}", "BOOK: {jsonSchema: {type: thing}}"), "not a usable JSON Schema 2020-12"),
        ("gateway", HOTEL.replace("BOOK: {}", "BOOK: {logni: true}"), "unknown field"),
        ("gateway", HOTEL.replace("BOOK: {}", "BOOK: {}, BOOK: {}"), "twice"),
    ],
)
def test_each_problem_is_reported_with_its_place(tmp_path: Path, plugin: str, text: str, what: str) -> None:
    with pytest.raises(ConfigInvalidError) as refused:
        read_resources(write(tmp_path, hotel=text) / "hotel.yaml", plugin)
    (problem,) = refused.value.problems
    assert what in problem.what
    assert str(tmp_path / "hotel.yaml") == problem.file


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalidError, match="No such file"):
        read_resources(tmp_path / "missing.yaml", "gateway")
