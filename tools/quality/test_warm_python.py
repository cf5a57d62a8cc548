"""A forked process of the broker is what a started one is: tests/kit/warm_python.py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.kit import sample_program
from tests.kit.shims import with_shims
from tests.kit.warm_python import HIGH, MAIN, ROOT, WARM, cold_starts, warm_starts

PROGRAM = [sys.executable, str(sample_program.__file__), "one", "two words"]
ENV = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "NAME": "value"} | {
    name: os.environ[name] for name in ("LANG", "LC_ALL", "LC_CTYPE") if name in os.environ
}


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    with warm_starts():
        yield


@pytest.mark.parametrize(("cold", "mask"), [(False, 0o077), (False, 0o027), (True, 0o027)])
def test_it_has_its_words_folder_environment_mask_and_descriptors_and_is_our_child(
    tmp_path: Path, cold: bool, mask: int
) -> None:
    before = os.umask(mask)
    with ExitStack() as stack:
        stack.callback(os.umask, before)
        stack.enter_context(cold_starts() if cold else nullcontext())
        done = subprocess.run(PROGRAM, check=False, cwd=tmp_path, env=ENV, input="in", capture_output=True, text=True)
    reported = json.loads(done.stdout)
    assert cold is not reported["forked"]
    assert (["one", "two words"], str(tmp_path), os.getpid()) == (reported["argv"], reported["cwd"], reported["parent"])
    assert mask == reported["umask"]
    assert ENV == {name: reported["env"].get(name) for name in ENV}
    assert reported["env"].keys() <= {*ENV, "LC_CTYPE"}, "an interpreter in the C locale sets this one"
    assert {"0", "1", "2"} == {each for each in reported["open"] if int(each) < 3}
    own = [each for each in map(int, reported["open"]) if each < HIGH]
    assert len(own) == 4, "the three, and that of the folder which it lists"
    assert len(reported["open"]) - len(own) == (not cold), "where its own starts are ordered"
    assert (3, "in\n") == (done.returncode, done.stderr)


@pytest.mark.parametrize("own_session", [False, True])
async def test_an_event_loop_waits_for_it_and_a_signal_ends_it(own_session: bool) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, stdin=pipe, stdout=pipe, stderr=pipe, env=ENV, start_new_session=own_session
    )
    assert process.stdout is not None
    reported = json.loads(await process.stdout.readline())
    assert (True, own_session) == (reported["forked"], reported["session"] == process.pid)
    process.send_signal(signal.SIGTERM)
    assert -signal.SIGTERM == await asyncio.wait_for(process.wait(), 60)


RUN = f"import runpy; runpy.run_path({PROGRAM[1]!r}, run_name='__main__')"
ENDS = {
    "at the end of its words": "print('said')",
    "with a status": "import sys; print('said'); sys.exit(300)",
    "with a sentence": "import sys; sys.exit('Do this instead.')",
    "by an exception": "import sys; sys.tracebacklimit = 0; raise ValueError('no')",
    "by Ctrl-C": "import sys; sys.excepthook = lambda *_: None; raise KeyboardInterrupt",
    "after its threads": "import threading, time; threading.Timer(0.1, print, ['late']).start()",
    "with its own last work": "import atexit; atexit.register(print, 'last')",
    "with a full disk": "import sys; sys.stdout = open('/dev/full', 'w'); print('lost')",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_forked_process_ends_as_a_started_one(tmp_path: Path, code: str) -> None:
    (tmp_path / "program.py").write_text(code)
    ends = []
    for context in (nullcontext(), cold_starts()):
        with context:
            words = [sys.executable, str(tmp_path / "program.py")]
            done = subprocess.run(words, check=False, env=ENV, capture_output=True, text=True)
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0] == ends[1]


def test_a_program_of_another_folder_is_forked_with_its_imports_and_the_broker_without(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import this_is_nowhere_else\n")
    (tmp_path / "this_is_nowhere_else.py").write_text("import tabnanny\n")
    program = tmp_path / "program.py"
    program.write_text("import sys\nbefore = set(sys.modules)\nimport beside, tabnanny\nprint('tabnanny' in before)\n")
    run = [sys.executable, "-u", str(program)]
    assert "True\n" == subprocess.run(run, check=True, env=ENV, capture_output=True, text=True).stdout
    asks = [sys.executable, "-c", f"import sys\nprint('tabnanny' in sys.modules, flush=True)\n{MAIN}", "--version"]
    said = subprocess.run(asks, check=True, env=ENV, capture_output=True, text=True).stdout
    assert "False" == said.splitlines()[0]


@pytest.mark.parametrize(("begin", "forked"), [(WARM, True), ("", False)])
def test_code_that_asks_for_it_is_forked_and_other_code_is_not(begin: str, forked: bool) -> None:
    run = [sys.executable, "-c", f"{begin}import sys\nprint('oauthbroker.cli' in sys.modules, *sys.argv)", "word"]
    assert f"{forked} -c word\n" == subprocess.run(run, check=True, env=ENV, capture_output=True, text=True).stdout


STARTS = """\
import json, os, subprocess, sys
read, write = os.pipe()
child = subprocess.run({command}, pass_fds=[write], process_group=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, input=b"")
print(json.dumps([os.getpid(), child.returncode, json.loads(child.stdout)]))
"""


def test_a_forked_process_forks_its_own_which_are_its_children(tmp_path: Path) -> None:
    """Also with a descriptor more and in a process group of their own, as the workers of a broker are started."""
    (tmp_path / "starts.py").write_text(STARTS.format(command=PROGRAM))
    command = [sys.executable, str(tmp_path / "starts.py")]
    done = subprocess.run(command, check=True, env=ENV, capture_output=True, text=True)
    pid, status, reported = json.loads(done.stdout)
    assert (3, True, pid) == (status, reported["forked"], reported["parent"])
    assert ("two words", ENV["NAME"]) == (reported["argv"][1], reported["env"]["NAME"])
    own = [each for each in map(int, reported["open"]) if each < HIGH]
    assert len(own) == 5, "the three, the one passed, and that of the folder"


SHELL = (
    f"python {PROGRAM[1]} one 'two words' </dev/null; echo $?; python -c 'import os; os.kill(os.getpid(), 9)'; echo $?"
)


def test_a_shim_hands_a_shells_command_to_the_test_and_ends_as_it_ends(tmp_path: Path) -> None:
    env = ENV | {"PATH": with_shims(tmp_path)}
    done = subprocess.run(["bash", "-c", SHELL], check=True, cwd=tmp_path, env=env, capture_output=True, text=True)
    first, *statuses = done.stdout.splitlines()
    reported = json.loads(first)
    assert (True, ["one", "two words"], str(tmp_path)) == (reported["forked"], reported["argv"], reported["cwd"])
    assert ["3", "137"] == statuses


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_a_shim_ends_its_command(tmp_path: Path, number: signal.Signals) -> None:
    env, pipe = ENV | {"PATH": with_shims(tmp_path)}, subprocess.PIPE
    with subprocess.Popen(["bash", "-c", f"exec python {PROGRAM[1]}"], env=env, stdin=pipe, stdout=pipe) as shell:
        assert shell.stdout
        assert json.loads(shell.stdout.readline())["forked"]
        shell.send_signal(number)
        assert b"" == shell.stdout.read(), "the command has ended"
        assert -number == shell.wait(60)


FRESH: dict[str, tuple[list[str], dict[str, Any]]] = {
    "an interpreter's option": ([sys.executable, "-X", "utf8", *PROGRAM[1:]], {}),
    "a variable that an interpreter reads": (PROGRAM, {"env": ENV | {"PYTHONHASHSEED": "1"}}),
    "other modules": (PROGRAM, {"env": ENV | {"PYTHONPATH": "/elsewhere"}}),
    "a mask that is set between": (PROGRAM, {"umask": 0o022}),
    "our descriptors": (PROGRAM, {"close_fds": False}),
    "code that is not the broker's": ([sys.executable, "-c", RUN], {}),
}


@pytest.mark.parametrize(("command", "more"), FRESH.values(), ids=FRESH)
def test_a_start_that_needs_a_fresh_interpreter_gets_one(command: list[str], more: dict[str, Any]) -> None:
    done = subprocess.run(command, check=False, input="", capture_output=True, text=True, **{"env": ENV, **more})
    assert not json.loads(done.stdout)["forked"]


@pytest.mark.parametrize(("locale", "forked"), [({}, True), ({"LANG": "C.UTF-8"}, True), ({"LANG": "C"}, False)])
@pytest.mark.parametrize("ours", ["C.UTF-8", ""])
def test_a_start_without_a_locale_is_one_with_that_which_an_interpreter_takes_then(
    monkeypatch: pytest.MonkeyPatch, ours: str, locale: dict[str, str], forked: bool
) -> None:
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.setenv(name, ours if name == "LANG" else "")
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **locale}
    done = subprocess.run(PROGRAM, check=False, env=env, input="", capture_output=True, text=True)
    assert forked is json.loads(done.stdout)["forked"]


def test_code_before_the_command_changes_modules_and_more_places_have_modules(tmp_path: Path) -> None:
    """The command line of a forked process is that of the Python it came from."""
    (tmp_path / "told.py").write_text(
        "from pathlib import Path\nmain = lambda: print(Path('/proc/self/cmdline').read_text())"
    )
    words = [sys.executable, "-c", "import told, oauthbroker.cli\noauthbroker.cli.main = told.main\n" + MAIN]
    env = ENV | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(words, check=True, env=env, capture_output=True, text=True)
    assert "warm_python_main" in done.stdout


def test_a_command_of_the_broker_is_forked_and_ends_as_a_started_one() -> None:
    words = [sys.executable, "-c", MAIN, "no-such-command"]
    ends = []
    for context in (nullcontext(), cold_starts()):
        with context:
            done = subprocess.run(words, check=False, env=ENV, capture_output=True, text=True)
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0] == ends[1]
    assert 2 == ends[0][0]
