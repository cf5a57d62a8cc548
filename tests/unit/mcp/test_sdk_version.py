"""An SDK that is missing, or of another version, is named with the command that helps."""

from __future__ import annotations

import pytest

import oauthbroker.mcp
from oauthbroker.cli import run
from oauthbroker.core import extras
from oauthbroker.plugins import UnfitExtra

UNFIT = ("", "2.2.9", "3.0", "unreadable")
SAYS = 'and oauthbroker needs mcp>=2.3,<3. Run: `pip install "oauthbroker[mcp]"`'


@pytest.fixture(params=UNFIT, autouse=True)
def _unfit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_version", lambda _: request.param)


def test_the_transports_need_no_sdk() -> None:
    assert "McpTransport" == oauthbroker.mcp.McpTransport.__name__
    assert callable(oauthbroker.mcp.httpx_client)


@pytest.mark.parametrize("name", ["McpOAuth", "TurnTokenVerifier"])
def test_a_public_name_is_refused_with_the_range_and_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(oauthbroker.mcp), name, raising=False)  # a test before may have used it
    with pytest.raises(UnfitExtra) as refused:
        getattr(oauthbroker.mcp, name)
    assert SAYS in str(refused.value)


def test_the_command_serve_is_refused_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["mcp", "serve"])
    said = capsys.readouterr()
    assert "" == said.out
    assert 1 == len(said.err.splitlines())
    assert SAYS in said.err
