"""Check a configuration that is not in use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oauthbroker.config.bundle.loading import load
from oauthbroker.config.problems.problems import ConfigInvalidError


def check_config(path: str | Path) -> Sequence[str]:
    """Return the problems of a configuration, the kinds of its plug-ins included, one line each; none if it is valid.

    It reads files, and from the environment only fields of the Broker resource: no store, no network. So a value that
    is missing there is found by `reload`.
    """
    try:
        load(path, os.environ)
    except ConfigInvalidError as refused:
        return [str(problem) for problem in refused.problems]
    return []
