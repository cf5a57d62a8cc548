"""A module that is missing is named by the extra that installs it, and by no other; a package that does not fit, by the
range and the command that helps."""

from __future__ import annotations

import sys
import tomllib
from typing import Any

import pytest

from oauthbroker.core import extras
from oauthbroker.core.extras import UnfitExtra, check_extra, missing_extra
from tests.kit.docs import page_text

EXTRAS: dict[str, list[str]] = tomllib.loads(page_text("pyproject.toml"))["project"]["optional-dependencies"]


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
        ("pathspec", "oauthbroker.tools.changesets.files", "tools"),
        ("jsonschema_rs", "oauthbroker.gateway.spec", "gateway"),
        ("jsonschema_rs", "oauthbroker.flowtools.specification.source", "flowtools"),
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


def test_the_ranges_are_those_of_the_project() -> None:
    """Where this fails, the package was installed before pyproject.toml changed."""
    written = {(extra, each.partition("[")[0].partition(">")[0]) for extra, rows in EXTRAS.items() for each in rows}
    assert {("mcp", "mcp"), ("langgraph", "langchain")} < written
    assert written == {(each.extra, each.package) for each in extras._required()}


@pytest.mark.case("144")
@pytest.mark.parametrize("extra", ["mcp", "google-adk", "langgraph", "openai-agents", "pydantic-ai"])
@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("", "is not installed"),
        ("0.9", "0.9 is installed"),
        ("99.0.1", "99.0.1 is installed"),
        ("unreadable", "unreadable is installed"),
    ],
)
def test_a_version_out_of_range_is_refused_with_the_range_and_the_command(
    monkeypatch: pytest.MonkeyPatch, extra: str, found: str, says: str
) -> None:
    monkeypatch.setattr(extras, "_version", lambda _: found)
    with pytest.raises(UnfitExtra) as refused:
        check_extra(extra)
    package = min(EXTRAS[extra])
    name = package.partition(">")[0]
    assert f'{name} {says}, and oauthbroker needs {package}. Run: `pip install "oauthbroker[{extra}]"`' == str(
        refused.value
    )


@pytest.mark.parametrize("found", ["2.3", "2.3.0", "2.99.1", "2.10rc1", "2.3.post1"])
def test_a_version_in_the_range_fits(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(extras, "_version", lambda _: found)
    check_extra("mcp")


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert "" == extras._version("no-such-package-of-ours")
