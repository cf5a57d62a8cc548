"""Presets of static credentials, as data: one YAML file each, with where every fact comes from.

A preset fills what a CredentialApp leaves out. docs/credentials.md says how to write one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from oauthbroker.providers.preset_files import Presets

if TYPE_CHECKING:
    from oauthbroker.providers.credentials.credential_preset import CredentialPreset


@functools.cache
def credential_presets() -> Presets[CredentialPreset]:
    return Presets(__name__, _form)


def _form() -> type[CredentialPreset]:
    from oauthbroker.providers.credentials.credential_preset import CredentialPreset

    return CredentialPreset
