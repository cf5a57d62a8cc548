"""The gateway in a running broker: `POST /v1/gateway/validate`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import Field

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.gateway.validation import rulebook, validate
from oauthbroker.plugins import PluginCall, PluginResources, PluginRoute, RequestModel, RunningPlugin

_FORM: Final = frozenset({"required_fields", "field_types", "constraints"})


class ValidateRequest(RequestModel):
    """The inputs. `action_schema` is `ActionSchema/name`, or schemas in the specification's own form, of which a
    malformed one rejects the actions of its type. JSON Schema is for operators: evaluating one may cost more than its
    size."""

    action_requests: Annotated[list[Any], Field(min_length=1, max_length=1000)]
    action_schema: str | dict[str, Any] | None = None
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
                raise self._unknown(wanted)
            inputs["action_schema"] = self._books.get(wanted or "ActionSchema/default")
        elif any(type(each) is dict and "json_schema" in each for each in wanted.values()):
            raise _refused("JSON Schema is for operators. Write an ActionSchema, and name it.")
        else:
            inputs["action_schema"] = {
                name: each for name, each in wanted.items() if type(each) is dict and each.keys() <= _FORM
            }
        return validate(**inputs, details=True)

    def _unknown(self, wanted: str) -> BrokerError:
        names = {each.partition("/")[2]: each for each in self._books}
        close = get_close_matches(wanted.rpartition("/")[2], names, n=1)
        hint = f"Did you mean {names[close[0]]}?" if close else "Name one as ActionSchema/name."
        return _refused(f"The configuration has no ActionSchema of this name. {hint}")


def _refused(sentence: str) -> BrokerError:
    error = BrokerError(Code.REQUEST_INVALID)
    error.errors, error.sentence = ({"pointer": "/action_schema", "problem": "value"},), sentence
    return error


@asynccontextmanager
async def open_plugin(_broker: Broker, resources: PluginResources) -> AsyncIterator[RunningPlugin]:
    gateway, path = Gateway(), "/v1/gateway/validate"
    await gateway.follow(resources)
    route = PluginRoute(
        method="POST", path=path, handler=gateway.validate, who=("turn", "runtime"), body=ValidateRequest
    )
    yield RunningPlugin(routes=[route], on_reload=gateway.follow)
