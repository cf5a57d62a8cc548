"""An SDK that is missing, or of another version, is named with the command that helps."""

from __future__ import annotations

import tomllib
from importlib import metadata

import pytest

import oauthbroker.mcp
from oauthbroker.cli import run
from oauthbroker.mcp import UnfitSdk, sdk_version
from tests.kit.docs import page_text

COMMAND = 'pip install "oauthbroker[mcp]"'
UNFIT = {
    "": "mcp is not installed",
    "2.2.9": "mcp 2.2.9 is installed",
    "3.0": "mcp 3.0 is installed",
    "unreadable": "mcp unreadable is installed",
}


def test_the_extra_installs_the_versions_that_fit() -> None:
    first, beyond = (".".join(map(str, each)) for each in (sdk_version.FIRST, sdk_version.BEYOND))
    (extra,) = tomllib.loads(page_text("pyproject.toml"))["project"]["optional-dependencies"]["mcp"]
    assert extra == sdk_version.RANGE == f"mcp>={first},<{beyond}"


@pytest.mark.parametrize("found", UNFIT)
def test_the_transports_need_no_sdk(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_version, "_installed", lambda: found)
    assert "McpTransport" == oauthbroker.mcp.McpTransport.__name__
    assert callable(oauthbroker.mcp.httpx_client)


@pytest.mark.parametrize("name", ["McpOAuth", "TurnTokenVerifier"])
@pytest.mark.parametrize("found", UNFIT)
def test_a_public_name_is_refused_with_the_range_and_the_command(
    found: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_version, "_installed", lambda: found)
    with pytest.raises(UnfitSdk) as refused:
        getattr(oauthbroker.mcp, name)
    for part in (UNFIT[found], sdk_version.RANGE, COMMAND):
        assert part in str(refused.value)


@pytest.mark.parametrize("found", ["2.3", "2.3.0", "2.99.1"])
def test_a_version_in_the_range_fits(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_version, "_installed", lambda: found)
    assert "McpOAuth" == oauthbroker.mcp.McpOAuth.__name__


@pytest.mark.parametrize("found", UNFIT)
def test_the_command_serve_is_refused_with_one_sentence(
    found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sdk_version, "_installed", lambda: found)
    assert 2 == run(["mcp", "serve"])
    said = capsys.readouterr()
    assert "" == said.out
    assert 1 == len(said.err.splitlines())
    for part in (UNFIT[found], sdk_version.RANGE, COMMAND):
        assert part in said.err


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UnfitSdk, match="mcp is not installed"):
        sdk_version.check_sdk()
