"""What a program loads to start: a heavy import that slips in is a red test with a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.installation import APP
from tests.kit.imports import STARTS, complaint, loaded, modules_of, table

BROKER = """
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "https://broker.example", store: {root: ../store}}
---
"""


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_only_the_needed_modules(name: str) -> None:
    row = table()[name]
    assert "" == complaint(name, set(row["loads"]), row["modules"])


def test_a_start_that_loads_more_is_named() -> None:
    names, count = loaded(STARTS["the client"])
    assert "loads oauthbroker.core" in complaint("the client", names - {"oauthbroker.core"}, count)
    assert "modules instead of" in complaint("the client", names, count // 2)
    assert "modules instead of" in complaint("the client", names, count * 2)


def test_an_embedded_broker_of_an_own_provider_loads_no_form_of_presets_and_nothing_of_the_pages(
    tmp_path: Path,
) -> None:
    (tmp_path / "broker.yaml").write_text(BROKER + APP, "utf-8")
    modules = modules_of(
        f"from oauthbroker import open_broker\nfrom oauthbroker.config import load\nload({str(tmp_path)!r})"
    )
    unused = {"providers.preset", "providers.credentials.credential_preset", "wiring.page_parts", "admin.overview"}
    assert set() == {f"oauthbroker.{name}" for name in unused} & {*modules}
    assert "oauthbroker.providers.quirks" in modules
