"""Find the tests that execute a line of the package: what `make mutants` runs for a change of that line.

`pytest -p tests.kit.executed_lines` writes a row of JSON for each test that passes: the test, its seconds of CPU, and the
lines of each module. The environment names the folder (EXECUTED_LINES). What runs while a module is imported belongs to no
test.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tokens", "refresh", "protocol", "store", "authorization", "wiring")
UNITS = (
    *FOLDERS,
    "grants",
    "injection",
    "records",
    "revocation",
    "client",
    "access",
    "key_services",
    "events",
    "audit",
)
STORIES = tuple(
    f"tests/story/test_{each}.py" for each in ("migration", "backup", "postgres")
)  # the nearest for databases
TESTS = (*(f"tests/unit/{each}" for each in UNITS), "tests/contract", *STORIES)
SECONDS, FILE_SECONDS = 6.0, 0.2  # the nearest tests of a line take so long together; a file of tests to be imported
_PREFIXES = tuple(f"{ROOT}/oauthbroker/{each}/" for each in FOLDERS)
_lines: set[tuple[CodeType, int]] = set()
_ours: dict[CodeType, bool] = {}
_failed: set[str] = set()


class Executed(NamedTuple):
    """The lines that a test executes, by module."""

    test: str
    seconds: float
    lines: dict[str, frozenset[int]]

    def breadth(self) -> tuple[int, str]:
        return sum(map(len, self.lines.values())), self.test


def nearest_tests(path: str, line: int, executed: Sequence[Executed] | None = None) -> tuple[str, ...]:
    """Return the tests that execute the statement of a line, those with the fewest other lines first, up to some seconds
    together. Tests of a statement that runs at the import are those that execute the module."""
    lines = _statement(path, line)
    tests, files, seconds = list[str](), set[str](), 0.0
    for each in _executed() if executed is None else executed:
        there = each.lines.get(path)
        if there is None or not (lines is None or there & lines):
            continue
        file = each.test.partition("::")[0]
        seconds += each.seconds + (0 if file in files else FILE_SECONDS)
        if tests and seconds > SECONDS:
            break
        tests.append(each.test)
        files.add(file)
    return tuple(tests)


@functools.cache
def _statements(path: Path) -> list[ast.stmt]:
    return [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.stmt)]


def _statement(path: str, line: int) -> set[int] | None:
    """Return the lines of the innermost statement, without those of its body. None if it runs at the import."""
    around = [each for each in _statements(ROOT / path) if _first(each) <= line <= (each.end_lineno or 0)]
    innermost = max(around, key=lambda each: each.lineno)
    defines = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if isinstance(innermost, defines) or not any(isinstance(each, defines[:2]) for each in around):
        return None
    within = (
        each for each in ast.walk(innermost) if isinstance(each, ast.stmt | ast.pattern) and each is not innermost
    )
    end: int = min((each.lineno for each in within), default=(innermost.end_lineno or line) + 1)
    return {*range(innermost.lineno, end)}


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


@functools.cache
def _executed() -> list[Executed]:
    rows = [json.loads(row) for path in _records() for row in path.read_text().splitlines()]
    read = (Executed(test, seconds, {path: frozenset(each) for path, each in of.items()}) for test, seconds, of in rows)
    return sorted(read, key=Executed.breadth)


def _records() -> list[Path]:
    """Return a file of rows for each file of tests. One that was changed runs again; after a change of the package, all."""
    folder = ROOT / "build/executed_lines" / _digest(sorted(Path(ROOT, "oauthbroker").rglob("*.py")))
    places = [ROOT / each for each in TESTS]
    tests = sorted(path for each in places for path in ([each] if each.suffix else each.rglob("test_*.py")))
    records = {path: folder / f"{_digest([path])}.jsonl" for path in tests}
    if changed := [path for path, record in records.items() if not record.exists()]:
        print(f"Finding out which lines the tests of {len(changed)} files execute", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as made:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--assert=plain", "-p", __name__]
            command += ["-m", "not slow and not e2e", *map(str, changed)]
            environment = os.environ | {"EXECUTED_LINES": made}
            subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
            for path in changed:
                rows = Path(made, _digest([path]))
                records[path].write_text(rows.read_text() if rows.exists() else "")
    return list(records.values())


@functools.cache
def _digest_of(path: Path) -> bytes:
    return hashlib.sha256(str(path).encode() + path.read_bytes()).digest()


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(map(_digest_of, paths))).hexdigest()[:24]


def _on_call(frame: FrameType, event: str, _: Any) -> Any:
    code = frame.f_code
    ours = _ours.get(code)
    if ours is None:
        ours = _ours[code] = code.co_filename.startswith(_PREFIXES) and code.co_name != "<module>"
    if not ours:
        return None
    return _on_line


def _on_line(frame: FrameType, event: str, _: Any) -> Any:
    _lines.add((frame.f_code, frame.f_lineno))
    return _on_line


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _lines.clear()
    start = time.process_time()
    threading.settrace(_on_call)
    sys.settrace(_on_call)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        if _lines and item.nodeid not in _failed:
            _write(item, time.process_time() - start)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _failed.add(report.nodeid)


def _write(item: pytest.Item, seconds: float) -> None:
    modules: dict[str, set[int]] = {}
    for code, line in _lines:
        modules.setdefault(code.co_filename.removeprefix(f"{ROOT}/"), set()).add(line)
    row = [item.nodeid, round(seconds, 3), {path: sorted(each) for path, each in modules.items()}]
    with Path(os.environ["EXECUTED_LINES"], _digest([item.path])).open("a") as rows:
        rows.write(json.dumps(row) + "\n")
