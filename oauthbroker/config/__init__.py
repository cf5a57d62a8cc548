"""YAML -> resources. `load` reads and judges a bundle, `resolve` puts the environment's and the store's values in."""

from __future__ import annotations

from oauthbroker.config.drafts import Loaded
from oauthbroker.config.loading import load, load_settings
from oauthbroker.config.problems import ConfigProblem, ConfigRefused, SourcePlace
from oauthbroker.config.resolving import resolve
from oauthbroker.config.values import Source

__all__ = ["ConfigProblem", "ConfigRefused", "Loaded", "Source", "SourcePlace", "load", "load_settings", "resolve"]
