"""The registry and the catalog (specification 002, sections 2.1, 3, 12 and 13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import ToolContext
from oauthbroker.tools.calling.registry import RegistrationRefused, Registry
from oauthbroker.tools.types.catalog import CatalogFrozen, ToolCatalogItem, ToolSource, UnknownTool
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import ToolCall
from tests.unit.tools.kit import CITY, scope_of, scrub

# 002 section 13.2, as printed
PRINTED: list[dict[str, Any]] = [
    {
        "name": "bash__exec",
        "description": "셸 명령 실행",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        "source": {"type": "config", "name": "bash"},
    },
    {
        "name": "weather__get",
        "description": "특정 도시의 현재 날씨 정보를 조회합니다",
        "parameters": {"type": "object", "properties": {}},
        "source": {"type": "extension", "name": "weather-ext"},
    },
    {
        "name": "github__create_issue",
        "description": "GitHub 이슈를 생성합니다",
        "parameters": {
            "type": "object",
            "properties": {"repo": {"type": "string"}, "title": {"type": "string"}},
            "required": ["repo", "title"],
        },
        "source": {"type": "mcp", "name": "mcp-github", "mcp": {"extensionName": "mcp-github"}},
    },
]
SOURCES = [None, None, ToolSource(type="mcp", name="any", extension_name="any")]
OWNERS = ["Tool/bash", "Extension/weather-ext", "Extension/mcp-github"]


def handler(ctx: object, args: object) -> None:
    """Do nothing."""


def item(name: str, **more: Any) -> ToolCatalogItem:
    return ToolCatalogItem(name=name, **more)


def printed_registry() -> Registry:
    registry = Registry()
    for reported, source, owner in zip(PRINTED, SOURCES, OWNERS, strict=True):
        members = {member: reported[member] for member in ("name", "description", "parameters")}
        registry.register(ToolCatalogItem(**members, source=source), handler, owner=owner)
    return registry


@pytest.mark.rule("002-13.1-1", "002-13.2-1", "002-2.1-1", "002-2.1-2", "002-2.1-4", "002-12.1-1", "004-12.1-2")
def test_the_catalog_of_a_step_is_the_printed_one():
    assert PRINTED == [each.to_json() for each in printed_registry().catalog(["bash"])]


@pytest.mark.rule("002-2.1-2", "002-3-1", "002-3-2", "004-12.1-1")
def test_a_catalog_shows_the_tools_of_the_agent_and_the_registry_has_all():
    registry = Registry()
    for name in ("a__foo", "a__bar", "b__run", "c__run"):
        registry.register(item(name), handler, owner=f"Tool/{name[0]}")
    assert ["a__foo", "a__bar", "b__run", "c__run"] == [each.name for each in registry]
    assert ["a__foo", "a__bar", "c__run"] == [each.name for each in registry.catalog(["c", "a"])]
    assert [] == [each.name for each in registry.catalog([])]


@pytest.mark.rule("002-12.3-1", "002-2.1-4", "004-12.1-2")
def test_a_dynamic_tool_is_shown_from_the_step_after_it_was_registered():
    registry = Registry()
    during = registry.catalog([])
    registry.register(item("weather__get"), handler, owner="Extension/weather-ext")
    assert "weather__get" not in during
    assert "weather__get" in registry.catalog([])


@pytest.mark.rule("002-2.1-3", "002-12.3-2", "004-12.1-2")
def test_a_catalog_may_be_changed_until_the_model_is_asked():
    registry = printed_registry()
    catalog = registry.catalog(["bash"])
    catalog.remove("bash__exec")
    catalog.remove("bash__exec")
    catalog.add(item("weather__get", description="Tomorrow's weather"))
    assert ["weather__get", "github__create_issue"] == [each.name for each in catalog]
    assert "Tomorrow's weather" == next(iter(catalog)).description
    with pytest.raises(UnknownTool, match="no tool of the name 'unknown__action' is registered: register it"):
        catalog.add(item("unknown__action"))
    catalog.freeze()
    with pytest.raises(CatalogFrozen):
        catalog.add(item("bash__exec"))
    with pytest.raises(CatalogFrozen):
        catalog.remove("weather__get")
    assert 2 == len(catalog)
    assert 3 == len(registry.catalog(["bash"])), "the next step begins anew"


@pytest.mark.rule("002-2.1-1", "002-2.1-3", "002-1.1-1")
def test_a_change_inside_an_item_of_a_catalog_reaches_no_later_step():
    registry, mine = Registry(), {"type": "object", "properties": {"city": {"type": "string"}}}
    registry.register(item("weather__get", parameters=mine), handler, owner="Extension/weather")
    before = json.dumps([each.to_json() for each in registry.catalog([])])
    mine["properties"]["city"]["enum"] = ["Busan"]  # type: ignore[index]
    for shown in registry.catalog([]):
        assert shown.parameters is not None
        shown.parameters["properties"]["city"]["enum"] = ["Seoul"]
    assert before == json.dumps([each.to_json() for each in registry.catalog([])])


@pytest.mark.rule("002-13.1-1", "002-13.2-1")
@pytest.mark.parametrize(
    ("claimed", "reported"),
    [
        (None, {"type": "extension", "name": "mine"}),
        (ToolSource(type="config", name="bash"), {"type": "extension", "name": "mine"}),
        (ToolSource(type="extension", name="other"), {"type": "extension", "name": "mine"}),
        (
            ToolSource(type="mcp", name="other", extension_name="other", server_name="github"),
            {"type": "mcp", "name": "mine", "mcp": {"extensionName": "mine", "serverName": "github"}},
        ),
    ],
)
def test_a_dynamic_tool_has_the_source_of_its_owner_and_no_other(claimed: ToolSource | None, reported: dict[str, Any]):
    registry = Registry()
    registry.register(item("a__b", source=claimed), handler, owner="Extension/mine")
    registry.register(item("bash__exec"), handler, owner="Tool/bash")
    catalog = registry.catalog(["bash"])
    assert [reported, {"type": "config", "name": "bash"}] == [each.to_json()["source"] for each in catalog]
    catalog.add(item("bash__exec", source=ToolSource(type="extension", name="mine")))
    assert [reported, {"type": "config", "name": "bash"}] == [each.to_json()["source"] for each in catalog]


@pytest.mark.rule("tools.ours-1")
def test_a_second_registration_of_a_name_names_both_owners():
    registry = Registry()
    registry.register(item("a__b"), handler, owner="Tool/a")
    with pytest.raises(RegistrationRefused, match=r"Extension/x .*Tool/a"):
        registry.register(item("a__b"), handler, owner="Extension/x")
    found = registry.find("a__b")
    assert found is not None
    assert "Tool/a" == found.owner


@pytest.mark.rule("002-2.2-1", "002-2.2-3", "002-2.2-4", "002-5.2-2", "002-5.2-4")
@pytest.mark.parametrize(
    "name",
    ["bash", "", "a__b__c", "a___b", "A__b", "a__B", "a__", "__b", "__", "a__b ", "a.b__c", "\u00e9__b", "a__\ud800", "\uff3f\uff3f",
     "a__b\n", "x" * 65 + "__b", "a__" + "x" * 65, None, 5, ["a__b"]],
    ids=ascii,
)  # fmt: skip
def test_a_malformed_name_is_not_registered(name: Any):
    with pytest.raises(RegistrationRefused, match="resource__export"):
        Registry().register(item(name), handler, owner="Extension/x")


@pytest.mark.rule("002-6.1-1", "002-15-6")
@pytest.mark.parametrize(
    "parameters",
    [{}, {"type": "string"}, {"type": ["object"]}, {"type": "object", "properties": {"a": {"type": "nothing"}}}, {"type": "object", "$ref": "https://x.example/y"},
     {"type": "object", "properties": {"a": {"pattern": "("}}}, {"type": "object", "required": "a"}, {"type": "object", "properties": None},
     {"type": "object", "default": float("nan")}, {"type": "object", "description": "\ud800"}, {"type": "object", "x": {1}}, [], "object", 5],
    ids=ascii,
)  # fmt: skip
def test_parameters_that_are_no_schema_of_type_object_are_refused(parameters: Any):
    with pytest.raises(RegistrationRefused, match="no usable JSON Schema"):
        Registry().register(item("a__b", parameters=parameters), handler, owner="Extension/x")
    Registry().register(item("a__b", parameters=CITY), handler, owner="Extension/x")


def test_parameters_never_read_another_document(tmp_path: Path):
    tmp_path.joinpath("city.json").write_text('{"type": "string"}', "utf-8")
    there = {"type": "object", "properties": {"city": {"$ref": tmp_path.joinpath("city.json").as_uri()}}}
    with pytest.raises(RegistrationRefused, match="no usable JSON Schema"):
        Registry().register(item("a__b", parameters=there), handler, owner="Extension/x")
    here = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "$defs": {"city": {"type": "string"}}}
    assert Registry().register(item("a__b", parameters=here), handler, owner="Extension/x").problems_of({"city": 1})


ODD_ITEMS: list[Any] = [
    {"name": "a__b"}, "a__b", None, item(None), item(5), item("a__b", description=5), item("a__b", parameters=[]),  # type: ignore[arg-type]
    item("a__b", source="mcp"), item("a__b", parameters={"type": "object", "default": float("nan")}),
    item("a__b", parameters={"type": "object", "title": "\ud800"}), item("a__b", description="\ud800"),
]  # fmt: skip


@pytest.mark.rule("002-12.1-2", "002-13.1-1")
@pytest.mark.parametrize("given", ODD_ITEMS, ids=str)
def test_an_item_that_no_catalog_could_show_is_refused_with_its_remedy(given: Any):
    registry = Registry()
    with pytest.raises(RegistrationRefused, match="Extension/x cannot register"):
        registry.register(given, handler, owner="Extension/x")
    assert [] == list(registry)


@pytest.mark.rule("002-12.1-2")
def test_parameters_that_change_after_the_registration_change_nothing():
    registry, parameters = Registry(), {"type": "object", "properties": {"a": {"type": "string"}}}
    registry.register(item("a__b", parameters=parameters), handler, owner="Extension/x")
    parameters["properties"]["a"]["type"] = "number"  # type: ignore[index]
    (shown,) = registry.catalog([])
    assert {"type": "object", "properties": {"a": {"type": "string"}}} == shown.parameters


def test_a_handler_that_cannot_be_called_is_refused():
    with pytest.raises(RegistrationRefused, match="no function"):
        Registry().register(item("a__b"), 3, owner="Extension/x")  # type: ignore[arg-type]
    with pytest.raises(RegistrationRefused, match="no owner"):
        Registry().register(item("a__b"), handler, owner="")


@pytest.mark.parametrize(("owner", "asks_as"), [("Tool/a", "Tool/a:b"), ("Extension/x", "Extension/x")])
def test_a_tool_asks_for_tokens_as_its_export_and_an_extension_as_itself(owner: str, asks_as: str):
    assert asks_as == Registry().register(item("a__b"), handler, owner=owner).asks_as


@pytest.mark.rule("002-12.2-1", "002-12.1-1")
async def test_the_printed_weather_tool_is_registered_and_called():
    registry = Registry()
    city = {"type": "string", "description": "도시 이름 (예: Seoul, Tokyo)"}

    async def get(ctx: ToolContext, args: dict[str, Any]) -> Any:
        if args["city"] != "Seoul":
            raise ToolFailure("날씨 API 오류: 404")
        return {"city": args["city"], "sky": "clear"}

    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    registry.register(
        item("weather__get", description="특정 도시의 현재 날씨 정보를 조회합니다", parameters=parameters),
        get,
        owner="Extension/weather",
    )
    calls, scope = ToolCalls(registry, scrub), scope_of(registry)
    done = await calls.perform(ToolCall("1", "weather__get", {"city": "Seoul"}), scope)
    assert {"city": "Seoul", "sky": "clear"} == done.output
    failed = await calls.perform(ToolCall("2", "weather__get", {"city": "Atlantis"}), scope)
    assert failed.error is not None
    assert "날씨 API 오류: 404" == failed.error.message
