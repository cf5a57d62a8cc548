"""The npm package: the same bytes twice, the files that it should have, and it works in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import typescript


@pytest.mark.e2e
@pytest.mark.slow
def test_the_package_installs_imports_and_has_its_types(tmp_path: Path):
    package = typescript.checked(tmp_path)
    assert package.name.startswith("oauthbroker-client-")
    assert {"dist/index.js", "dist/index.d.ts", "dist/node.js", "README.md", "LICENSE"} <= typescript.contents(package)
