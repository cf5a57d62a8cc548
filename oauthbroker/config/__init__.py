"""YAML -> resources. `load` reads and judges a bundle, `resolve` puts the environment's and the store's values in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily

if TYPE_CHECKING:
    from oauthbroker.config.loading import load, load_settings
    from oauthbroker.config.problems import ConfigProblem, ConfigRefused, SourcePlace
    from oauthbroker.config.resolving import resolve
    from oauthbroker.config.unresolved_bundle import Loaded
    from oauthbroker.config.value_sources import Source

__all__ = ["ConfigProblem", "ConfigRefused", "Loaded", "Source", "SourcePlace", "load", "load_settings", "resolve"]

__getattr__ = lazily(  # a broker over a `Bundle` built in code reads no YAML and loads no models of it
    __name__,
    {
        "config.loading": {"load", "load_settings"},
        "config.problems": {"ConfigProblem", "ConfigRefused", "SourcePlace"},
        "config.resolving": {"resolve"},
        "config.unresolved_bundle": {"Loaded"},
        "config.value_sources": {"Source"},
    },
)
