"""A bundle is checked by loading its code in the sandbox: what would end the process of an agent is a problem of the
changeset, and ends nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.tools.changesets import trial
from oauthbroker.tools.changesets.trial import bundle_problems
from oauthbroker.tools.isolation.containment import detect_containment
from tests.kit.agent_bundle import AGENTS, EDITABLE, FILES, LISTS, NOTES, USER, written

EXTENSION = "def register(api):\n"
BROKEN: dict[str, tuple[Mapping[str, str], str]] = {
    "a tool that raises": ({"notes.py": NOTES + "raise RuntimeError('no')\n"}, r"Tool/notes: .*its import raised RuntimeError: no \(notes\.py:\d+\)"),
    "handlers that are no mapping": ({"notes.py": NOTES + "handlers = 5\n"}, "Tool/notes: .*no usable `handlers`"),
    "a handler that is no function": ({"notes.py": NOTES + "handlers['add'] = 5\n"}, "Tool/notes: .*add.*no function"),
    "a handler that is removed": ({"notes.py": NOTES + "del handlers['add']\n"}, "Tool/notes: .*cannot register add: its module has no such handler"),
    "no Python": ({"notes.py": NOTES + "def (:\n"}, r"agents.yaml:\d+:\d+ .*Not readable as Python, notes\.py:\d+:5: invalid syntax"),
    "a loop without an end": ({"notes.py": NOTES + "while True: pass\n"}, "Tool/notes did not load within 6 seconds"),
    "a wait without an end": ({"notes.py": NOTES + "time.sleep(600)\n"}, "Tool/notes did not load within 6 seconds"),
    "an end of the process": ({"notes.py": NOTES + "os._exit(0)\n"}, "Tool/notes ended the process that loaded it"),
    "a signal": ({"notes.py": NOTES + "os.kill(os.getpid(), 9)\n"}, "Tool/notes ended the process that loaded it"),
    "SystemExit": ({"notes.py": NOTES + "raise SystemExit(0)\n"}, "Tool/notes: .*its import raised SystemExit"),
    "too much memory": ({"notes.py": NOTES + "all = [bytearray(2 ** 28) for _ in range(64)]\n"}, "Tool/notes: .*MemoryError"),
    "a word on the socket": ({"notes.py": NOTES + "os.write(int(__import__('sys').argv[1]), b'{]\\n')\nos._exit(0)\n"}, "Tool/notes ended"),
    "an extension that raises": ({"counter.py": EXTENSION + "    raise OSError\n"}, r"Agent/planner: Extension/counter: register\(api\) failed with OSError"),
    "an extension that ends the process": ({"counter.py": "import os\n" + EXTENSION + "    os._exit(0)\n"}, "Agent/planner ended the process"),
    "an extension that waits": ({"counter.py": "import asyncio\nasync " + EXTENSION + "    await asyncio.sleep(600)\n"}, "Agent/planner did not load within 6 seconds"),
    "an extension's import": ({"counter.py": EXTENSION + "    pass\nraise OSError\n"}, "Agent/planner: Extension/counter .*its import raised OSError"),
    "an extension with a taken name": (
        {"counter.py": "from oauthbroker.tools import ToolCatalogItem\n" + EXTENSION + "    api.tools.register(ToolCatalogItem(name='notes__add'), len)\n"},
        "Agent/planner: .*Tool/notes registered this name before",
    ),
    "an extension with a name of the runtime": (
        {"counter.py": "from oauthbroker.tools import ToolCatalogItem\n" + EXTENSION + "    api.tools.register(ToolCatalogItem(name='swarmBundle__openChangeset'), len)\n"},
        "Agent/planner: .*swarmBundle__openChangeset.*registered this name before",
    ),
    "a model that raises": ({"model.py": "raise OSError\n"}, "Agent/planner: the model .*its import raised OSError"),
    "a model without `complete`": ({"model.py": "model = 5\n"}, "Agent/planner: the model .*no usable `model`"),
    "a provider that there is not": ({"agents.yaml": AGENTS.replace("provider: python, name: ./model.py", "provider: nothing, name: x")}, "Agent/planner: the provider 'nothing' has no usable model"),
    "a provider that is misspelt": ({"agents.yaml": AGENTS.replace("provider: python, name: ./model.py", "provider: pyhton, name: x")}, r"Agent/planner: the provider 'pyhton' \(the nearest known one is python\) has no usable model"),
    "an isolated tool that raises": (
        {"notes.py": NOTES + "raise OSError\n", "agents.yaml": AGENTS.replace("spec:\n  entry: ./notes.py", "spec:\n  isolation: process\n  entry: ./notes.py")},
        "Tool/notes: .*its import raised OSError",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMITS", replace(trial.LIMITS, seconds=6))


def bundle(folder: Path, **changed: str) -> Path:
    return written(folder / "config", files={**FILES, **changed}, state=folder / "state")


@pytest.mark.parametrize("files", [FILES, EDITABLE, {**EDITABLE, "agents.yaml": LISTS}], ids=["plain", "all", "lists"])
def test_a_bundle_that_starts_has_no_problem(tmp_path, monkeypatch, files):
    monkeypatch.setattr(trial, "LIMITS", replace(trial.LIMITS, seconds=60))
    assert [] == bundle_problems(
        written(tmp_path / "config", files=files, state=tmp_path / "state"), detect_containment(user=USER)
    )


@pytest.mark.parametrize(("changed", "problem"), BROKEN.values(), ids=BROKEN)
def test_a_bundle_that_would_not_start_has_the_problem_that_names_the_part(tmp_path, monkeypatch, changed, problem):
    if "within" not in problem:  # on a busy machine these may take long, and none of them waits
        monkeypatch.setattr(trial, "LIMITS", replace(trial.LIMITS, seconds=60))
    names = {**EDITABLE, **changed} if "agents.yaml" not in changed else {**FILES, **changed}
    folder = written(tmp_path / "config", files=names, state=tmp_path / "state")
    found = bundle_problems(folder, detect_containment(user=USER))
    assert re.search(problem, found[0]), found


def test_code_that_is_tried_sees_neither_our_environment_nor_hidden_files_and_changes_no_file_of_the_bundle(
    tmp_path, monkeypatch
):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("the key")
    monkeypatch.setenv("OF_THE_BROKER", "secret")
    code = (
        "assert 'OF_THE_BROKER' not in os.environ\n"
        f"assert not Path({str(secret / 'key')!r}).exists()\n"
        "try:\n    Path(__file__).write_text('')\nexcept OSError:\n    pass\nelse:\n    raise ValueError\n"
    )
    folder = bundle(tmp_path, **{"notes.py": NOTES + code})
    assert [] == bundle_problems(folder, detect_containment(user=USER, hidden=[secret]))
    assert (secret / "key").exists()
