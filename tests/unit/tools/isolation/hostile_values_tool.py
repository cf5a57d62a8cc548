"""A tool whose export returns or raises a value of the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[4]))
from tests.kit.hostile_values import ERRORS, made


def give(_ctx: Any, args: Any) -> Any:
    value = made(args["name"])
    if args["name"] in ERRORS:
        raise value
    return value


handlers = {"give": give}
