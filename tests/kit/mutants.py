"""`make mutants`: change one operator, condition, constant or statement of a module, and see whether its nearest tests fail.

No file is changed: a child process, forked from one that has imported all third-party packages, imports the changed module from memory.

    python -m tests.kit.mutants                         the four core modules, then the sample until --minutes are over
    python -m tests.kit.mutants oauthbroker/tokens/decision.py     one module
    python -m tests.kit.mutants --sample                the sample alone
    python -m tests.kit.mutants --planted               the faults of tests/kit/planted_faults.py
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

from tests.kit.mutations import mutations
from tests.kit.planted_faults import PLANTED

CORE = {
    "oauthbroker/store/format/seal.py": ("tests/unit/store/test_seal.py", "tests/unit/store/test_vectors.py"),
    "oauthbroker/tokens/decision.py": ("tests/unit/tokens/test_decision.py",),
    "oauthbroker/protocol/callback_checks.py": ("tests/unit/protocol/test_callback_checks.py",),
    "oauthbroker/refresh/transaction.py": ("tests/unit/refresh/test_transaction.py",),
}
SAMPLED = ("tokens", "refresh", "protocol", "store")
SAMPLE, SEED, PROCESSES, LONGEST = 300, 1, 2, 120  # LONGEST: seconds for the nearest tests of one mutant
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


def nearest(path: str) -> tuple[str, ...]:
    """Return a module's nearest tests: named for core modules, else the unit files that import it, else the folder's."""
    if path in CORE:
        return CORE[path]
    module = path.removesuffix(".py").replace("/", ".")
    folder = Path("tests/unit", Path(path).parts[1])
    tests = [*sorted(Path("tests/unit").rglob("test_*.py")), *sorted(Path("tests/contract").rglob("test_*.py"))]
    own = [str(each) for each in tests if f"{module} import" in each.read_text()]
    return tuple(own) or (str(folder),)


def start(mutant: Mutant | None, tests: tuple[str, ...]) -> int:
    """Run the tests in a child process and return its id. It ends with 0 if none fails; a run that takes too long is
    stopped, which counts as a failure."""
    child = os.fork()
    if child:
        return child
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
        code = int(import_module("pytest").main([*options, *tests]))
    finally:
        os._exit(code)


@functools.cache
def is_green(tests: tuple[str, ...]) -> bool:
    """Tell whether the tests pass without a mutant, in time. Else they can tell nothing about one."""
    green = os.waitpid(start(None, tests), 0)[1] == 0
    if not green:
        print(f"not run: {' '.join(tests)} is red, or takes too long, without a mutant", flush=True)
    return green


def run(mutants: Iterable[Mutant], until: float) -> list[tuple[Mutant, bool]]:
    """Run mutants on two processes until the time is over, and print each survivor. True: its tests failed."""
    results, running = list[tuple[Mutant, bool]](), dict[int, Mutant]()
    waiting = (each for each in mutants if is_green(nearest(each.path)))
    while True:
        while len(running) < PROCESSES and time.monotonic() < until and (mutant := next(waiting, None)) is not None:
            running[start(mutant, nearest(mutant.path))] = mutant
        if not running:
            return results
        child, status = os.wait()
        mutant = running.pop(child)
        results.append((mutant, status != 0))
        if status == 0:
            print(f"survives  {mutant.path}:{mutant.line}  {mutant.change}", flush=True)


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
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for each in IMPORTED:
        import_module(each)
    core = list(planted()) if options.planted else [it for path in options.modules or CORE for it in mutants_of(path)]
    if not options.sample:
        score(run(core, until), len(core))
    if not (options.planted or options.modules):
        score(run(sampled(), until), SAMPLE)


if __name__ == "__main__":
    main()
