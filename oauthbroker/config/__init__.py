"""YAML -> resources. `load` reads and judges a bundle, `resolve` puts the environment's and the store's values in."""

from __future__ import annotations

from oauthbroker.config.loading import Loaded, load, load_settings
from oauthbroker.config.problems import ConfigRefused, Place, Problem
from oauthbroker.config.resolving import resolve
from oauthbroker.config.values import Source

__all__ = ["ConfigRefused", "Loaded", "Place", "Problem", "Source", "load", "load_settings", "resolve"]
