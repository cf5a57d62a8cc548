"""Load the tools, extensions and models of a bundle. This runs their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.bundle.entries import HANDLERS, REGISTER, EntryRefused, entry_file, entry_object, loading
from oauthbroker.tools.bundle.spec import ToolExportSpec, ToolResourceSpec
from oauthbroker.tools.calling.call_life import MOST_SECONDS, SECONDS
from oauthbroker.tools.calling.registry import IsolatedTool, RegistrationRefused, Registry
from oauthbroker.tools.extensions.pipeline import Pipeline
from oauthbroker.tools.models import Model
from oauthbroker.tools.turns.extension_api import Config, ExtensionFailed, ExtensionHost, InstanceValues, register_all
from oauthbroker.tools.types.catalog import ToolCatalogItem

Isolate = Callable[[Path, ToolResourceSpec, float], IsolatedTool]
REFUSALS: Final = (EntryRefused, RegistrationRefused, ExtensionFailed)
PYTHON: Final = "python"  # a provider: the model is the object `model` of a Python file of the bundle
_PROVIDERS: Final = (PYTHON, "anthropic", "bedrock", "google", "groq", "mistral", "ollama", "openai", "openrouter")
_OWN_SECONDS: Final = {"base:bash": 130.0, "base:agents": MOST_SECONDS}  # by entry: their handlers end a little earlier


def register_tools(
    registry: Registry, tools: Mapping[str, ToolResourceSpec], folder: Path, *, isolate: Isolate | None = None
) -> None:
    """Register all exports of Tool resources by name. `isolate` makes the handler of an isolated export from its file,
    spec and time. Raises EntryRefused or RegistrationRefused."""
    for name, spec in tools.items():
        handlers = _handlers_of(name, spec, folder, isolate)
        for export in spec.exports or ():
            if (handler := handlers.get(export.name)) is None:
                raise RegistrationRefused(f"Tool/{name} cannot register {export.name}: its module has no such handler")
            full, seconds = f"{name}__{export.name}", _seconds_of(spec, export)
            item = ToolCatalogItem(name=full, description=export.description, parameters=export.parameters)
            registry.register(item, handler, owner=f"Tool/{name}", limit=spec.error_message_limit, seconds=seconds)


def _handlers_of(name: str, spec: ToolResourceSpec, folder: Path, isolate: Isolate | None) -> Mapping[Any, Any]:
    owner, entry = f"Tool/{name}", spec.entry or ""
    if spec.isolation is None:
        handlers: Mapping[Any, Any] = entry_object(owner, entry, folder, HANDLERS, lambda it: isinstance(it, Mapping))
        return handlers
    if isolate is None:
        raise RegistrationRefused(f"{owner} needs a process of its own, and this runtime starts none")
    with loading(owner, entry):
        file = entry_file(entry, folder)
        return {export.name: isolate(file, spec, _seconds_of(spec, export)) for export in spec.exports or ()}


def _seconds_of(spec: ToolResourceSpec, export: ToolExportSpec) -> float:
    return export.timeout_seconds or spec.timeout_seconds or _OWN_SECONDS.get(spec.entry or "", SECONDS)


class LibraryMissing(EntryRefused):
    """The library of a model's provider is not installed here."""


async def load_agent(
    tools: Mapping[str, ToolResourceSpec],
    extensions: Sequence[tuple[str, str, Config]],
    folder: Path,
    *,
    values: InstanceValues,
    isolate: Isolate | None = None,
) -> tuple[Registry, Pipeline]:
    """Run the modules of an agent's tools and extensions. Return its tools and middlewares. Raises one of REFUSALS."""
    registry, pipeline = Registry(), Pipeline()
    register_tools(registry, tools, folder, isolate=isolate)
    found = [
        (name, config, entry_object(f"Extension/{name}", entry, folder, REGISTER, callable))
        for name, entry, config in extensions
    ]
    await register_all(found, ExtensionHost(pipeline=pipeline, register_tool=registry.register, values=values))
    return registry, pipeline


def load_model(folder: Path, *, provider: str, name: str, api_key: str | None, params: Mapping[str, Any]) -> Model:
    """Return a model by its name at a provider; one of the provider `python` by running its file. `params` go into each
    request. Raises EntryRefused, of which LibraryMissing is the fault of the machine."""
    if provider != PYTHON:
        from oauthbroker.tools.models import adapted

        close = [] if provider in _PROVIDERS else get_close_matches(provider, _PROVIDERS, n=1, cutoff=0.75)
        fault = f"the provider {provider!r}" + "".join(f" (the nearest known one is {each})" for each in close)
        try:
            return adapted(provider, name, api_key, params)
        except ImportError:
            fault += (
                ' needs a library: run `pip install "oauthbroker[tools-models]"` with its extra of pydantic-ai-slim'
            )
            raise (EntryRefused if close else LibraryMissing)(fault) from None
        except Exception as error:  # noqa: BLE001  (of the library, whose text may hold the key)
            fault += f" has no usable model {name!r}: {type(error).__name__}"
        raise EntryRefused(fault)
    found: Model = entry_object("the model", name, folder, "model", lambda it: callable(getattr(it, "complete", None)))
    return found
