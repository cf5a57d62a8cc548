"""The environment of a server: that of its process, and below it the file `.env` beside the bundle.

What opens the bundle reads the file, and a client never does: a `.env` in a cloned repository must not choose the
broker that a client talks to.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oauthbroker.config.bundle.loading import load
from oauthbroker.config.bundle.unresolved_bundle import Loaded
from oauthbroker.config.problems.problems import Problems, SourcePlace
from oauthbroker.config.reading.files import MAX_BYTES, environment_file, read_plain
from oauthbroker.config.reading.writers import foreign_writer

_LINE: Final = re.compile(
    r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'#][^\"'#]*)?)\s*(?:#.*)?"
)


def server_environment(bundle: Path) -> Mapping[str, str]:
    """Return the variables that a server of this bundle reads. Raises ConfigInvalidError for a `.env` that cannot be
    used."""
    file = environment_file(bundle)
    if not file.exists():
        return os.environ
    return ChainMap(os.environ, _variables_in(file))


def load_here(bundle: Path) -> Loaded:
    """Load a bundle with the environment of its server, which `Loaded.env` has. Raises ConfigInvalidError."""
    return load(bundle, server_environment(bundle))


def _variables_in(file: Path) -> dict[str, str]:
    problems, found = Problems(), dict[str, str]()
    place, raw = SourcePlace(str(file)), read_plain(file, MAX_BYTES)
    if raw is None or len(raw) > MAX_BYTES:
        problems.add(place, "", "not a readable plain file of at most 1 MiB", "correct it, or remove it")
    elif writer := foreign_writer(file):
        problems.add(place, "", *writer)
    else:
        for number, line in enumerate(raw.decode("utf-8-sig", "replace").splitlines(), 1):
            text = line.strip()
            match = _LINE.fullmatch(text)
            if match is not None:
                found[match[1]] = (match[2] or match[3] or match[4] or "").strip()
            elif text and not text.startswith("#"):
                problems.add(SourcePlace(str(file), number, 1), "", "not a variable", "write NAME=value on one line")
    problems.raise_if_any()
    return found
