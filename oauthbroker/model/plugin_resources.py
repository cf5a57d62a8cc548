"""The resources of a plug-in, with their values resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.secret import Secret

SpecPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class PluginResource:
    """One resource of a kind that a plug-in declared. `spec` is an object of that kind's model, `secrets` holds the
    values of its `SecretSource` fields by their path in `spec`, a tuple in the spelling of the YAML:
    `secrets["apiKey",]`, `secrets["shelves", 0, "apiKey"]`."""

    kind: str
    name: str
    spec: Any
    _: KW_ONLY
    secrets: Mapping[SpecPath, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginResources:
    """All resources of one plug-in. `folder` is the folder of the bundle; None for a bundle that was built in code."""

    resources: tuple[PluginResource, ...] = ()
    folder: Path | None = None

    def of(self, kind: str) -> dict[str, PluginResource]:
        """Return the resources of a kind by name."""
        return {each.name: each for each in self.resources if each.kind == kind}
