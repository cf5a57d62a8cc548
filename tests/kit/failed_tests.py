"""Name the tests that failed in the last run: `python -m tests.kit.failed_tests --most 3`.

Ends with status 1 if there are more than that, or none: then the run failed by something else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

_FAILED = Path(".pytest_cache/v/cache/lastfailed")  # pytest's own, for --lf


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, required=True, help="how many may be tried again")
    most = parser.parse_args().most
    failed = list(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    for name in failed[: most + 1]:
        print(f"FLAKY, OR BROKEN: {name}")
    return 0 if 1 <= len(failed) <= most else 1


if __name__ == "__main__":
    raise SystemExit(main())
