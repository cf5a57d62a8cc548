"""`make release`: check that everything agrees, build and try the packages, and stop before publishing."""

from __future__ import annotations

import sys

from oauthbroker.core.version import VERSION
from release import audit, checks, dist


def main() -> int:
    """Return 0 if dist/ is ready to be published, else 1. Publishes nothing and changes nothing but dist/."""
    found = checks.disagreements(checks.gathered())
    for sentence in found:
        print(sentence, file=sys.stderr)
    if found:
        print(f"make release: {len(found)} to fix; nothing was built.", file=sys.stderr)
        return 1
    if audit.main() or dist.main():
        return 1
    print(f"Version {VERSION} is ready in dist/. Nothing was published.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
