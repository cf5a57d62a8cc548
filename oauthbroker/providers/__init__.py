"""What we know of providers, as data: one YAML file each, with where every fact comes from.

A preset fills what an OAuthApp leaves out. Nothing here is code of one provider. docs/providers.md says how to
write one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from oauthbroker.providers.preset_files import Presets

if TYPE_CHECKING:
    from oauthbroker.providers.preset import Preset


@functools.cache
def presets() -> Presets[Preset]:
    return Presets(__name__, _form)


def _form() -> type[Preset]:
    from oauthbroker.providers.preset import Preset

    return Preset
