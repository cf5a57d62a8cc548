"""The kinds of the sample plug-in: one of its own, and its part of a Tool."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from oauthbroker.plugins import Ref, ResourceKind, SecretSource, Strict, Tolerant, WrittenResource, WrittenResources


class ServerSpec(Strict):
    """`url` is required: a model may say so itself."""

    url: Annotated[str, Field(max_length=200)]
    token: SecretSource | None = None


class NotebookSpec(Strict):
    mode: Literal["read", "write"] = "read"
    oauth_app_ref: Ref | None = None
    next_page: Ref | None = None
    pages: Annotated[int, Field(ge=1, le=100)] = 1
    servers: dict[str, ServerSpec] | None = None


class NotesSpec(Strict):
    notebook: Ref | None = None


class ToolNotesSpec(Tolerant):
    """The broker reads `auth` of a Tool, and this plug-in `notes`."""

    notes: NotesSpec | None = None


def check_notebook(notebook: WrittenResource, resources: WrittenResources) -> None:
    spec: NotebookSpec = notebook.spec
    resources.refer(notebook, ("oauthAppRef",), "OAuthApp")
    if spec.next_page is not None:
        resources.refer(notebook, ("nextPage",), "Notebook")
    if spec.mode == "write" and spec.servers is None:
        notebook.missing(("servers",), "name the servers that are written to")
    for name, server in (spec.servers or {}).items():
        if not server.url.startswith("https://"):
            notebook.refuse(("servers", name, "url"), "not an https address", "write https://...")


def check_tool(tool: WrittenResource, resources: WrittenResources) -> None:
    spec: ToolNotesSpec = tool.spec
    if spec.notes is not None:
        resources.refer(tool, ("notes", "notebook"), "Notebook")


KINDS = (
    ResourceKind(kind="Notebook", model=NotebookSpec, check=check_notebook),
    ResourceKind(kind="Tool", model=ToolNotesSpec, check=check_tool),
)
