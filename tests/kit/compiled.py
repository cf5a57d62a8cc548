"""Compile a checkout on all cores before `make test`: the package, and the tests with pytest's rewritten asserts.

The workers of a run begin at once, so that each would compile every file of a fresh checkout. A file that was compiled
since it changed is left alone.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from _pytest.assertion import rewrite

ROOT = Path(__file__).parents[2]
FOLDERS = ("oauthbroker", "bench", "release", "tests")
NOT_PLAIN = re.compile(r"node_modules|/(?:test_[^/]*|conftest)\.py$")
"""Files that are not compiled as Python imports them: pytest rewrites test files."""


class QuietConfig:
    """Stands for pytest's configuration and trace: no hook is called for asserts that pass."""

    def getini(self, name: str) -> bool:
        return False

    def trace(self, text: str) -> None: ...


def rewritten(path: Path) -> Path:
    """Return where pytest keeps the byte code of a test file."""
    return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)


def rewrite_asserts(path: Path) -> bool:
    """Write the byte code of a test file as pytest does. Return whether it was missing or outdated."""
    target, config_without_hooks = rewritten(path), QuietConfig()
    if not rewrite.try_makedirs(target.parent) or rewrite._read_pyc(path, target) is not None:
        return False
    config: Any = config_without_hooks
    source_hash, code = rewrite._rewrite_test(path, config)
    return rewrite._write_pyc(config, code, source_hash, target)


def files_of_tests(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.py") if NOT_PLAIN.search(str(path)) and "node_modules" not in path.parts]


def compile_tests(paths: Iterable[Path], cores: int) -> int:
    """Rewrite the asserts of these files; return how many needed it."""
    with ProcessPoolExecutor(cores) as pool:
        return sum(pool.map(rewrite_asserts, paths, chunksize=8))


def main() -> None:
    cores = os.cpu_count() or 1
    with contextlib.suppress(OSError):  # a folder that cannot be written: each worker compiles for itself
        for folder in FOLDERS:
            compileall.compile_dir(ROOT / folder, rx=NOT_PLAIN, quiet=2, workers=cores)
        compile_tests(files_of_tests(ROOT / "tests"), cores)


if __name__ == "__main__":
    main()
