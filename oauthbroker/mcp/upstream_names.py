"""How the gateway's host names what a server has: `server__tool`, `server__prompt`, and `server+uri` for resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import CallToolResult, EmbeddedResource, GetPromptResult, ReadResourceResult, ResourceLink

from oauthbroker.mcp.spec import McpServerSpec

BETWEEN: Final = "__"  # between the names of server and tool
BETWEEN_URI: Final = "+"  # between a server's name and a URI of it, which is a URI again
NAMED_BY: Final[Mapping[str, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resource_templates": "uri_template",
}
"""What a server lists, as the SDK spells it, and the member that names each."""


def shown(server: str, spec: McpServerSpec, kind: str, found: list[Any]) -> list[Any]:
    """Return those of a server's tools, prompts, resources or templates that are shown, under the host's names."""
    member = NAMED_BY[kind]
    between = BETWEEN if member == "name" else BETWEEN_URI
    return [
        each.model_copy(update={member: f"{server}{between}{getattr(each, member)}"})
        for each in found
        if spec.shows(kind, getattr(each, member))
    ]


def with_shown_uris(server: str, spec: McpServerSpec, answer: Any) -> Any:
    """Return a server's answer in which each resource that is shown has the URI by which the host can read it."""

    def named(each: Any) -> Any:
        if isinstance(each, EmbeddedResource):
            return each.model_copy(update={"resource": named(each.resource)})
        if not spec.shows("resources", each.uri):
            return each
        return each.model_copy(update={"uri": f"{server}{BETWEEN_URI}{each.uri}"})

    def linked(each: Any) -> Any:
        return named(each) if isinstance(each, ResourceLink | EmbeddedResource) else each

    match answer:
        case CallToolResult():
            return answer.model_copy(update={"content": [linked(each) for each in answer.content]})
        case GetPromptResult():
            messages = [each.model_copy(update={"content": linked(each.content)}) for each in answer.messages]
            return answer.model_copy(update={"messages": messages})
        case ReadResourceResult():
            return answer.model_copy(update={"contents": [named(each) for each in answer.contents]})
    return answer
