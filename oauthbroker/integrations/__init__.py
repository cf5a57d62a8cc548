"""Adapters for agent frameworks, a plug-in: a run pauses for the user's consent and resumes by itself. See
README.md. The public names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oauthbroker.plugins import Plugin, lazily

if TYPE_CHECKING:
    from oauthbroker.integrations.consent import consent_for
    from oauthbroker.integrations.google_adk import OAuthProvider, resume_google_adk, run_google_adk, say_refusal
    from oauthbroker.integrations.google_adk_mcp import OAuthMcpTools
    from oauthbroker.integrations.langgraph import OAuthMiddleware, resume_langgraph
    from oauthbroker.integrations.langgraph_mcp import OAuthMcpMiddleware
    from oauthbroker.integrations.mcp_servers import OAuthMcp
    from oauthbroker.integrations.openai_agents import consent_first, resume_openai_agents, run_openai_agents
    from oauthbroker.integrations.openai_agents_mcp import OAuthMcpServer
    from oauthbroker.integrations.paused_runs import PausedRun, pause
    from oauthbroker.integrations.pydantic_ai import OAuthToolset, resume_pydantic_ai, run_pydantic_ai
    from oauthbroker.integrations.pydantic_ai_mcp import OAuthMcpToolset
    from oauthbroker.integrations.resuming import PauseEnd, RunAnswer, resume

__all__ = [
    "PLUGIN", "OAuthMcp", "OAuthMcpMiddleware", "OAuthMcpServer", "OAuthMcpTools", "OAuthMcpToolset", "OAuthMiddleware",
    "OAuthProvider", "OAuthToolset", "PauseEnd", "PausedRun", "RunAnswer", "consent_first",
    "consent_for", "pause", "resume", "resume_google_adk", "resume_langgraph", "resume_openai_agents",
    "resume_pydantic_ai", "run_google_adk", "run_openai_agents", "run_pydantic_ai", "say_refusal",
]  # fmt: skip

PLUGIN = Plugin(name="integrations", open="oauthbroker.integrations.paused_runs:open_plugin")
_PLACES: Final = {  # the file, which without `_mcp` is also the extra of an adapter: its names
    "consent": {"consent_for"},
    "mcp_servers": {"OAuthMcp"},
    "paused_runs": {"PausedRun", "pause"},
    "resuming": {"PauseEnd", "RunAnswer", "resume"},
    "google_adk": {"OAuthProvider", "resume_google_adk", "run_google_adk", "say_refusal"},
    "google_adk_mcp": {"OAuthMcpTools"},
    "langgraph_mcp": {"OAuthMcpMiddleware"},
    "openai_agents_mcp": {"OAuthMcpServer"},
    "pydantic_ai_mcp": {"OAuthMcpToolset"},
    "langgraph": {"OAuthMiddleware", "resume_langgraph"},
    "openai_agents": {"consent_first", "resume_openai_agents", "run_openai_agents"},
    "pydantic_ai": {"OAuthToolset", "resume_pydantic_ai", "run_pydantic_ai"},
}

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {f"integrations.{place}": names for place, names in _PLACES.items()},
        {f"integrations.{place}": place.removesuffix("_mcp").replace("_", "-") for place in _PLACES},
    )
