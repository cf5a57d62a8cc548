"""There is one version: the build reads it, and everything that names a version names this one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import oauthbroker
from oauthbroker.client.retries import AGENT
from oauthbroker.core.version import VERSION
from oauthbroker.injection.headers import outgoing
from oauthbroker.web.api.openapi import document

ROOT = Path(__file__).parents[3]


def test_the_version_is_one_that_packages_can_have():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", VERSION)


def test_the_package_the_api_and_the_typescript_client_have_it():
    client = ROOT / "clients/typescript"
    package, lock = (json.loads((client / name).read_text("utf-8")) for name in ("package.json", "package-lock.json"))
    named = {oauthbroker.__version__, document()["info"]["version"], package["version"], lock["version"]}
    assert {VERSION} == {*named, lock["packages"][""]["version"]}


def test_outgoing_requests_name_it():
    assert f"oauthbroker-client/{VERSION}" == AGENT
    assert (b"User-Agent", f"oauthbroker/{VERSION}".encode()) in outgoing([])
    assert f'export const VERSION = "{VERSION}";' in (ROOT / "clients/typescript/src/version.ts").read_text("utf-8")


def test_the_build_reads_it_and_writes_it_nowhere_else():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert ["version"] == project["project"]["dynamic"]
    assert "oauthbroker/core/version.py" == project["tool"]["hatch"]["version"]["path"]
    sources = [path for path in (ROOT / "oauthbroker").rglob("*.py") if f'"{VERSION}"' in path.read_text("utf-8")]
    assert ["version.py"] == [path.name for path in sources]


def test_asking_for_it_loads_next_to_nothing():
    program = (
        "import sys, oauthbroker; oauthbroker.__version__; print(len(sys.modules), 'importlib.metadata' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "False" == said.stdout.split()[1]
