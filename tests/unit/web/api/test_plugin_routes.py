"""Which routes a plug-in may have. Each problem stops the start, with a note that names the plug-in and the path."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugins.running_plugin import PluginRoute
from oauthbroker.web.api.call_table import OPERATIONS
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.plugin_routes import operations_of


class Bed(RequestModel):
    bed: str


class Loose(BaseModel):
    bed: str


async def answer(call: Any) -> None: ...


def a_route(path: str = "/v1/garden/beds", **more: Any) -> PluginRoute:
    return PluginRoute(**{"method": "POST", "path": path, "handler": answer, "who": ("turn",), **more})


def public(path: str, **more: Any) -> PluginRoute:
    return a_route(path, **{"method": "GET", "who": (), **more})


SOUND = {
    "the plug-in's own path": a_route("/v1/garden"),
    "a step below": a_route("/v1/garden/beds"),
    "a variable step": a_route("/v1/garden/{bed}/dig", parameters=Bed),
    "a body": a_route(body=Bed),
    "a query": a_route(query=Bed),
    "a public document": public("/.well-known/garden-resource/v1/garden"),
    "for any caller": public("/v1/garden/open"),
}


@pytest.mark.parametrize("route", SOUND.values(), ids=SOUND)
def test_a_sound_route_becomes_an_operation(route: PluginRoute) -> None:
    (operation,) = operations_of({"garden": [route]})
    assert (route.path, route.method, tuple(route.who)) == (operation.path, operation.method, operation.who)


FLAWED = {
    "a path of the broker": a_route("/v1/tokens"),
    "a path of another plug-in": a_route("/v1/orchard/beds"),
    "a path that only begins like the plug-in": a_route("/v1/gardens"),
    "a path outside /v1": a_route("/garden"),
    "the root": a_route("/"),
    "no path": a_route(""),
    "a slash at the end": a_route("/v1/garden/"),
    "two slashes": a_route("/v1/garden//x"),
    "a converter of the router": a_route("/v1/garden/{bed:int}", parameters=Bed),
    "a character of a query": a_route("/v1/garden/x?y"),
    "a page": public("/garden.html"),
    "a public document by POST": public("/.well-known/x", method="POST"),
    "a public document with authentication": public("/.well-known/x", who=("turn",)),
    "a public document with a variable": public("/.well-known/{bed}", parameters=Bed),
    "an unknown method": a_route(method="PATCH"),
    "an unknown caller": a_route(who=("admin",)),
    "a body of GET": a_route(method="GET", body=Bed),
    "a lax body": a_route(body=Loose),
    "a lax query": a_route(query=Loose),
    "lax parameters": a_route("/v1/garden/{bed}", parameters=Loose),
    "a body that is no model": a_route(body=dict),
    "a variable without a parameter": a_route("/v1/garden/{bed}"),
    "a parameter without a variable": a_route("/v1/garden/x", parameters=Bed),
    "another name": a_route("/v1/garden/{beds}", parameters=Bed),
}


@pytest.mark.parametrize("route", FLAWED.values(), ids=FLAWED)
def test_a_invalid_route_is_refused_with_the_name_of_its_plugin(route: PluginRoute) -> None:
    with pytest.raises(BrokerError) as refused:
        operations_of({"garden": [a_route("/v1/garden/sound"), route]})
    assert Code.CONFIG_INVALID is refused.value.code
    assert f"the plug-in garden, {route.method} {route.path}: " in str(refused.value)


@pytest.mark.parametrize("segment", sorted({operation.path.split("/")[2] for operation in OPERATIONS}))
def test_a_plugin_with_the_name_of_a_path_of_the_broker_has_no_routes(segment: str) -> None:
    with pytest.raises(BrokerError, match=f"the plug-in {segment}, "):
        operations_of({segment: [a_route(f"/v1/{segment}/mine")]})


TWICE = {
    "the same route twice": ("garden", a_route(), "garden", a_route()),
    "the same shape": (
        "garden", a_route("/v1/garden/{bed}", parameters=Bed), "garden",
        a_route("/v1/garden/{tree}", parameters=type("Tree", (RequestModel,), {"__annotations__": {"tree": str}})),
    ),
    "the same shape by another method": (
        "garden", a_route("/v1/garden/{bed}", parameters=Bed), "garden",
        a_route("/v1/garden/{tree}", method="DELETE", parameters=type("Tree", (RequestModel,), {"__annotations__": {"tree": str}})),
    ),
    "a public document of two plug-ins": ("garden", public("/.well-known/x"), "orchard", public("/.well-known/x")),
}  # fmt: skip


@pytest.mark.parametrize(("first", "one", "second", "other"), TWICE.values(), ids=TWICE)
def test_two_routes_do_not_have_one_path(first: str, one: PluginRoute, second: str, other: PluginRoute) -> None:
    plugins: dict[str, list[PluginRoute]] = {first: [one]}
    plugins.setdefault(second, []).append(other)
    with pytest.raises(BrokerError, match="another route has this path"):
        operations_of(plugins)


def test_one_path_may_have_several_methods() -> None:
    assert 2 == len(operations_of({"garden": [a_route(), a_route(method="DELETE")]}))
