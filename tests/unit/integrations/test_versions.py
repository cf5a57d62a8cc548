"""An adapter says which package it lacks, before its framework is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import oauthbroker.integrations
from oauthbroker.core import extras
from oauthbroker.plugins import UnfitExtra

ADAPTERS = ("OAuthProvider", "OAuthMiddleware", "consent_first", "OAuthToolset", "OAuthMcpTools", "OAuthMcpServer")


@pytest.mark.case("144")
@pytest.mark.parametrize("name", ADAPTERS)
def test_the_public_name_of_an_adapter_is_refused_before_its_framework_is_imported(name, monkeypatch):
    monkeypatch.setattr(extras, "_version", lambda _: "")
    monkeypatch.delitem(vars(oauthbroker.integrations), name, raising=False)  # a test before may have used it
    with pytest.raises(UnfitExtra):
        getattr(oauthbroker.integrations, name)


def test_a_package_that_no_extra_installs_is_named_with_the_command(monkeypatch):
    monkeypatch.delitem(vars(oauthbroker.integrations), "OAuthMcpMiddleware", raising=False)
    monkeypatch.delitem(sys.modules, "oauthbroker.integrations.langgraph_mcp", raising=False)
    monkeypatch.setattr(extras, "check_extra", lambda _: None)
    for package in ("langchain_mcp_adapters", "langchain_mcp_adapters.tools"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnfitExtra, match=r"OAuthMcpMiddleware needs \S+, which is not installed. Run: `pip install "):
        _ = oauthbroker.integrations.OAuthMcpMiddleware


def test_the_folder_imports_no_framework_until_an_adapter_is_used():
    code = "import sys, oauthbroker.integrations as it; it.pause; it.resume; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"langgraph", "langchain", "langchain_core", "pydantic_ai", "agents", "google.adk"} & set(loaded)


def test_a_name_that_the_plugin_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="unknown"):
        _ = oauthbroker.integrations.unknown  # type: ignore[attr-defined]
