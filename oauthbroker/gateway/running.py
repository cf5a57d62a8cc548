"""The gateway in a running broker: `POST /v1/gateway/validate`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.gateway.validation import rulebook, validate
from oauthbroker.plugins import PluginCall, PluginResources, PluginRoute, RequestModel, RunningPlugin


class ValidateRequest(RequestModel):
    """The inputs. `action_schema` is `ActionSchema/name`, or schemas in the specification's own form. JSON Schema is
    for operators: evaluating one may cost more than its size."""

    action_requests: Annotated[list[Any], Field(min_length=1, max_length=1000)]
    action_schema: str | dict[str, dict[Literal["required_fields", "field_types", "constraints"], Any]] | None = None
    user_context: dict[str, Any] | None = None
    available_products: list[Any] | None = None
    available_coupons: list[Any] | None = None


class Gateway:
    """The rulebooks of a configuration, by reference."""

    async def follow(self, resources: PluginResources) -> None:
        self._books = {f"ActionSchema/{name}": rulebook(it.spec) for name, it in resources.of("ActionSchema").items()}

    async def validate(self, call: PluginCall) -> dict[str, Any]:
        inputs = dict(call.body)
        if not isinstance(wanted := inputs["action_schema"], dict):
            if wanted is not None and wanted not in self._books:
                raise BrokerError(Code.NOT_FOUND)
            inputs["action_schema"] = self._books.get(wanted or "ActionSchema/default")
        return validate(**inputs, details=True)


@asynccontextmanager
async def open_plugin(_broker: Broker, resources: PluginResources) -> AsyncIterator[RunningPlugin]:
    gateway, path = Gateway(), "/v1/gateway/validate"
    await gateway.follow(resources)
    route = PluginRoute(
        method="POST", path=path, handler=gateway.validate, who=("turn", "runtime"), body=ValidateRequest
    )
    yield RunningPlugin(routes=[route], on_reload=gateway.follow)
