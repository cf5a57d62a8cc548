"""A module that is missing is named by the extra that installs it, and by no other."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from oauthbroker.core.extras import missing_extra


def failure(statement: str, module: str) -> BaseException:
    """What that statement raises in that module of ours."""
    try:
        exec(compile(statement, "x.py", "exec"), {"__name__": module})  # noqa: S102  (a frame with the name of a module of ours)
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError(statement)


@pytest.mark.parametrize(
    ("module", "place", "extra"),
    [
        ("pathspec", "oauthbroker.tools.changesets.differences", "tools"),
        ("jsonschema_rs", "oauthbroker.gateway.spec", "gateway"),
        ("jsonschema_rs", "oauthbroker.flowtools.specification.shapes", "flowtools"),
        ("cel_expr_python", "oauthbroker.flowtools.specification.expressions", "flowtools"),
        ("psycopg", "oauthbroker.store.postgres.pools", "postgres"),
        ("pyrage", "oauthbroker.store.migration.age", "backup"),
    ],
)
def test_a_missing_module_is_named_by_the_extra_of_the_folder_that_imports_it(
    monkeypatch: Any, module: str, place: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert f'it needs `pip install "oauthbroker[{extra}]"`' == missing_extra(failure(f"import {module}", place))


@pytest.mark.parametrize("statement", ["import oauthbroker.nowhere", "import yaml.nowhere", "import nowhere", "1 / 0"])
def test_other_failures_are_no_missing_extra(statement: str) -> None:
    assert "" == missing_extra(failure(statement, "oauthbroker.tools.x"))
