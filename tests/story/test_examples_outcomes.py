"""How the programs of examples/ end where the story does not go well: a sentence that is true, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli import environment
from tests.kit.docs import ROOT
from tests.kit.warm_python import WARM

EXAMPLES = ROOT / "examples"
MCP, FRAMEWORKS = EXAMPLES / "mcp" / "mcp_demo.py", EXAMPLES / "frameworks" / "demo.py"
TEAM = EXAMPLES / "team-assistant" / "assistant.py"
DENIED = "Access was not granted, so nothing was connected."
# Runs a program with a played user who decides otherwise, or with a provider that fails after the consent.
PLAYED = """
import os, runpy, signal, sys
from pathlib import Path
from oauthbroker import testing
what, path, *words = sys.argv[1:]
consents, connect = [], testing.connect_through
async def played(browser, provider, url, account="alice"):
    consents.append(url)
    if what == "ctrl-c":
        os.kill(os.getpid(), signal.SIGINT)
        return None
    page = await connect(browser, provider, url, account, deny=what == "deny")
    if what == "revoked" and len(consents) == 1:
        provider.revoke_all("demo")
    if what == "api away":
        provider.script.resource.close_after_accept(times=None)
    if what == "api fails":
        provider.script.resource.answer(500, times=None)
    return page
testing.connect_through = played
sys.path.insert(0, str(Path(path).parent))
sys.argv = [path, *words]
runpy.run_path(path, run_name="__main__")
"""


def run(folder: Path, *words: str | Path, program: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program from an empty folder, as the reader of its page does."""
    command = [sys.executable, *(["-c", WARM + program] if program else []), *map(str, words)]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment(), text=True, capture_output=True, timeout=180
    )


ENDS: dict[str, tuple[str, Path, tuple[str, ...], int, list[str]]] = {
    "a no to an MCP server": ("deny", MCP, ("--auto",), 1, ["host", f"failed providerDenied: {DENIED}"]),
    "Ctrl-C at the link of an MCP server": ("ctrl-c", MCP, ("--auto",), 0, ["host"]),
    "an MCP server that fails": ("api fails", MCP, ("--auto",), 1, ["host", "failed The server refused the session: "]),
    "a no to an agent": ("deny", FRAMEWORKS, ("plain", "--auto"), 0, ["you", "agent", "", f"agent {DENIED}"]),
    "Ctrl-C at the link of an agent": ("ctrl-c", FRAMEWORKS, ("plain", "--auto"), 0, ["you", "agent", ""]),
    "a grant that ends at once": (
        "revoked", FRAMEWORKS, ("plain", "--auto"), 0,
        ["you", "agent", "", "agent The connection to Demo Mail has expired.", "agent {"],
    ),
    "an API that is away": (
        "api away", FRAMEWORKS, ("plain", "--auto"), 0, ["you", "agent", "", "agent The mail could not be reached"],
    ),
    "an API that fails": (
        "api fails", FRAMEWORKS, ("plain", "--auto"), 0, ["you", "agent", "", "agent The mail answered with status 500."],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("end", ENDS)
def test_an_example_says_how_it_ended(tmp_path: Path, end: str) -> None:
    what, path, words, status, begins = ENDS[end]
    done = run(tmp_path, what, path, *words, program=PLAYED)
    said = [*done.stdout.splitlines(), *filter(None, done.stderr.splitlines())]
    assert (status, False) == (done.returncode, "Traceback" in done.stderr), done
    assert len(begins) == len(said), said
    assert [True] * len(begins) == [line.startswith(begin) for begin, line in zip(begins, said, strict=True)], said
    assert [] == list(tmp_path.iterdir())


PROGRAMS = [
    *(EXAMPLES / "mcp" / name for name in ("host.py", "mail_server.py")),
    EXAMPLES / "frameworks" / "plain_agent.py",
    FRAMEWORKS,
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_without_its_arguments_says_which(tmp_path: Path, path: Path) -> None:
    done = run(tmp_path, path)
    assert (2, True) == (done.returncode, "the following arguments are required: " in done.stderr), done


@pytest.mark.slow
def test_a_host_without_a_configuration_names_the_folder(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES / "mcp" / "host.py", "nowhere", "inbox")
    assert (1, "nowhere: No such file or directory. Name the folder that holds the YAML files.") == (
        done.returncode, done.stderr.strip(),
    )  # fmt: skip


@pytest.mark.slow
def test_a_machine_that_cannot_run_the_agents_is_told_why(tmp_path: Path) -> None:
    refuses = """
import runpy, sys
from pathlib import Path
from oauthbroker import tools
def refused(*_words, **_more):
    raise ValueError("the user id 65534 cannot run python")
tools.Orchestrator = refused
path = sys.argv[1]
sys.path.insert(0, str(Path(path).parent))
sys.argv = [path, "--auto"]
runpy.run_path(path, run_name="__main__")
"""
    done = run(tmp_path, TEAM, program=refuses)
    assert (1, "team-assistant: the user id 65534 cannot run python.") == (done.returncode, done.stderr.strip())


@pytest.mark.slow
@pytest.mark.parametrize(("what", "status"), [("deny", "failed"), ("ready", "ready")])
def test_the_team_assistant_is_ready_only_with_a_connection(tmp_path: Path, what: str, status: str) -> None:
    done = run(tmp_path, what, TEAM, "--auto", program=PLAYED)
    if "cannot run" in done.stderr:
        pytest.skip("agents of a runtime that is root need bubblewrap, or a Python that others may read")
    assert (status, int(status != "ready")) == (json.loads(done.stdout)["status"], done.returncode), done
