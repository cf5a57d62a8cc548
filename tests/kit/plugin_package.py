"""Packages with a plug-in, made for one test: a module and the metadata that names its entry point."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.plugins_installed import distribution

HEAD = """
from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from oauthbroker import BrokerError, Code, Secret
from oauthbroker.plugins import (
    Background, Plugin, PluginAuditEntry, PluginFinding, PluginRoute, RequestModel, RunningPlugin,
)

heard = []
"""


def install(folder: Path, name: str, code: str, declared: str = "open=here('open_plugin')") -> str:
    """Write the package of a plug-in below a folder that the caller puts on `sys.path`. Return the name of its module,
    which is not used by another test: `here('x')` in `declared` is `module:x`."""
    module = "plugin_" + re.sub(r"\W", "_", f"{name}_{folder.parent.name}_{folder.name}")
    end = f"\n\ndef here(name):\n    return {module!r} + ':' + name\n\n\nPLUGIN = Plugin(name={name!r}, {declared})\n"
    distribution(folder, module, {name: f"{module}:PLUGIN"}, **{module: HEAD + code + end})
    return module
