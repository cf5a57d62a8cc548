"""YAML -> resources. `load` reads and checks a bundle, `resolve` puts the environment's and the store's values in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily

if TYPE_CHECKING:
    from oauthbroker.config.bundle.loading import load, load_settings
    from oauthbroker.config.bundle.resolving import resolve
    from oauthbroker.config.bundle.unresolved_bundle import Loaded
    from oauthbroker.config.problems.problems import ConfigInvalidError, ConfigProblem, SourcePlace
    from oauthbroker.config.values.value_sources import Source

__all__ = ["ConfigInvalidError", "ConfigProblem", "Loaded", "Source", "SourcePlace", "load", "load_settings", "resolve"]

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(  # a broker over a `Bundle` built in code reads no YAML and loads no models of it
        __name__,
        {
            "config.bundle.loading": {"load", "load_settings"},
            "config.problems.problems": {"ConfigProblem", "ConfigInvalidError", "SourcePlace"},
            "config.bundle.resolving": {"resolve"},
            "config.bundle.unresolved_bundle": {"Loaded"},
            "config.values.value_sources": {"Source"},
        },
    )
