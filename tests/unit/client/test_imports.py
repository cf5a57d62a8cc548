"""The client is light: a tool's process loads no server, no cryptography and no models for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = ("cryptography", "pydantic", "pydantic_core", "starlette", "uvicorn", "authlib", "joserfc", "yaml", "filelock")
OURS = (
    "wiring",
    "tokens",
    "repository",
    "store",
    "web",
    "config",
    "cli",
    "authorization",
    "refresh",
    "protocol",
    "testing",
)


def test_importing_the_client_loads_no_cryptography_no_models_and_no_server() -> None:
    heavy = {*HEAVY, *(f"oauthbroker.{room}" for room in OURS)}
    program = f"import sys, oauthbroker.client\nprint(*sorted({heavy!r} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "" == said.stdout.strip()
