"""`make mutants`: change one operator, condition, constant or statement of a module, and see whether its nearest tests fail.

No file is changed: a child process, forked from one that has imported all third-party packages, imports the changed module from memory.

    python -m tests.kit.mutants                         the four core modules, then the sample until --minutes are over
    python -m tests.kit.mutants oauthbroker/tokens/decision.py     one module
    python -m tests.kit.mutants --sample                the sample alone
    python -m tests.kit.mutants --planted               the faults of tests/kit/planted_faults.py

The nearest tests of a line are the unit and contract tests that execute it, those that execute the fewest other lines
first. One run of these tests, which takes three minutes, says which they are (`tests/kit/executed_lines.py`).
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tests.kit.executed_lines import nearest_tests
from tests.kit.mutations import mutations
from tests.kit.planted_faults import PLANTED

CORE = {
    "oauthbroker/store/format/seal.py": ("tests/unit/store/test_seal.py", "tests/unit/store/test_vectors.py"),
    "oauthbroker/tokens/decision.py": ("tests/unit/tokens/test_decision.py",),
    "oauthbroker/protocol/callback_checks.py": ("tests/unit/protocol/test_callback_checks.py",),
    "oauthbroker/refresh/transaction.py": ("tests/unit/refresh/test_transaction.py",),
}
SAMPLED = ("tokens", "refresh", "protocol", "store")
SAMPLE, SEED, LONGEST = 300, 1, 60  # LONGEST: seconds for the nearest tests of one mutant
IMPORTED = (
    "pytest",
    "pytest_asyncio.plugin",
    "hypothesis.strategies",
    "httpx2",
    "starlette.routing",
    "yaml",
    "cryptography.x509",
)


class Mutant(NamedTuple):
    """One change of a module: where, and what becomes what."""

    path: str
    line: int
    change: str
    code: CodeType


class _Changed(SourceFileLoader):
    """Load the module from the changed code, without a look at files of byte code."""

    def __init__(self, mutant: Mutant, name: str) -> None:
        super().__init__(name, str(Path(mutant.path).resolve()))
        self._code = mutant.code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Finder:
    """Find the changed module before Python looks for its file."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant, self._name = mutant, mutant.path.removesuffix(".py").replace("/", ".")

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != self._name:
            return None
        return spec_from_file_location(name, self._mutant.path, loader=_Changed(self._mutant, name))


def mutants_of(path: str, numbers: Collection[int] | None = None) -> Iterator[Mutant]:
    """Yield the mutants of a module: all, or those with these numbers."""
    tree = ast.parse(Path(path).read_text())
    for number, (line, change) in enumerate(mutations(tree)):
        if numbers is None or number in numbers:
            yield Mutant(path, line, change, compile(tree, path, "exec", dont_inherit=True))


def planted() -> Iterator[Mutant]:
    """Yield the planted faults. Each one's line must stand in its file exactly once."""
    for path, before, after in PLANTED:
        source = Path(path).read_text()
        if source.count(before) != 1:
            raise SystemExit(
                f"{path} holds {before!r} {source.count(before)} times; correct tests/kit/planted_faults.py"
            )
        line = source[: source.index(before)].count("\n") + 1
        code = compile(source.replace(before, after), path, "exec", dont_inherit=True)
        yield Mutant(path, line, f"{before} -> {after}", code)


def sampled() -> Iterator[Mutant]:
    """Yield the seeded sample over the rest of four folders, in random order: what runs in half the time is a sample too."""
    paths = [str(path) for each in SAMPLED for path in sorted(Path("oauthbroker", each).rglob("*.py"))]
    counts = {path: sum(1 for _ in mutations(ast.parse(Path(path).read_text()))) for path in paths if path not in CORE}
    places = [(path, number) for path, count in counts.items() for number in range(count)]
    for path, number in random.Random(SEED).sample(places, SAMPLE):
        yield from mutants_of(path, [number])


def nearest(mutant: Mutant) -> tuple[str, ...]:
    """Return the tests that try a mutant: those named for its module, else those that execute its line."""
    return CORE.get(mutant.path) or nearest_tests(mutant.path, mutant.line)


class _FirstFailure:
    """A pytest plugin that writes the name of the first test that fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            os.write(self._descriptor, f"{report.nodeid}\n".encode())


class Trial(NamedTuple):
    """A child process that runs the tests of a mutant. It ends with 0 if none fails, and writes the one that does."""

    mutant: Mutant | None
    tests: tuple[str, ...]
    child: int
    failure: int

    def has_noticed(self, status: int) -> bool:
        """Tell whether the mutant is the reason of a failure. A run that takes too long is stopped: a failure, too."""
        with os.fdopen(self.failure) as pipe:
            failed = pipe.readline().rstrip("\n")
        return status != 0 and is_green((failed,) if failed else self.tests)


def start(mutant: Mutant | None, tests: tuple[str, ...]) -> Trial:
    """Run the tests in a child process."""
    failure, written = os.pipe()
    child = os.fork()
    if child:
        os.close(written)
        return Trial(mutant, tests, child, failure)
    code = 1
    try:
        os.setsid()
        signal.alarm(LONGEST)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--assert=plain"]
        code = int(import_module("pytest").main([*options, *tests], plugins=[_FirstFailure(written)]))
    finally:
        os._exit(code)


@functools.cache
def is_green(tests: tuple[str, ...]) -> bool:
    """Tell whether the tests pass without a mutant, in time. Else they can tell nothing about one."""
    trial = start(None, tests)
    green = os.waitpid(trial.child, 0)[1] == 0
    os.close(trial.failure)
    if not green:
        print(f"red without a mutant: {' '.join(tests)}", flush=True)
    return green


def run(mutants: Iterable[Mutant], until: float, processes: int) -> list[tuple[Mutant, bool]]:
    """Run mutants until the time is over, and print each survivor. True: its tests failed."""
    results, running = list[tuple[Mutant, bool]](), list[Trial]()
    waiting = iter(mutants)
    while True:
        while len(running) < processes and time.monotonic() < until and (mutant := next(waiting, None)) is not None:
            if tests := nearest(mutant):
                running.append(start(mutant, tests))
            else:
                results.append((mutant, False))
                print(f"not executed  {mutant.path}:{mutant.line}  {mutant.change}", flush=True)
        if not running:
            return results
        trial = running.pop(0)
        noticed = trial.has_noticed(os.waitpid(trial.child, 0)[1])
        if trial.mutant is not None:
            results.append((trial.mutant, noticed))
            if not noticed:
                print(f"survives  {trial.mutant.path}:{trial.mutant.line}  {trial.mutant.change}", flush=True)


def score(results: list[tuple[Mutant, bool]], of: int) -> None:
    """Print the score of each module."""
    ran, found = Counter(each.path for each, _ in results), Counter(each.path for each, fell in results if fell)
    for path in sorted(ran):
        print(f"{found[path]:5} of {ran[path]:4}  {path}")
    print(f"{found.total():5} of {ran.total():4}  ({of} mutants in all)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for each in IMPORTED:
        import_module(each)
    core = list(planted()) if options.planted else [it for path in options.modules or CORE for it in mutants_of(path)]
    if not options.sample:
        score(run(core, until, options.processes), len(core))
    if not (options.planted or options.modules):
        score(run(sampled(), until, options.processes), SAMPLE)


if __name__ == "__main__":
    main()
