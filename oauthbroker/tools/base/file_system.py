"""The tool `file-system`: `read` and `write` (specification 002, section 14.1)."""

from __future__ import annotations

from typing import Final

from oauthbroker.tools.base.texts import Confined, confined, cut_to_output, decoded, needed, opened_file, replace_file
from oauthbroker.tools.calling.context import Json, ToolContext
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import VALUE

DEFAULT_BYTES: Final = 100_000
MOST_BYTES: Final = 1_000_000  # of a content that is written
_REASONS: Final = {
    FileNotFoundError: "The file does not exist",
    IsADirectoryError: "This is a folder",
    NotADirectoryError: "A part of the path is not a folder, or a symbolic link",
    PermissionError: "The file may not be used",
}


def read(ctx: ToolContext, given: dict[str, Json]) -> Json:
    """Answer `{path, size, truncated, content}`. `size` counts the bytes of the whole file, and `content` is what fits
    an output. A Tool of one's own may allow any number as `maxBytes`."""
    place = confined(ctx, needed(given, "path"))
    most = min(max(0, int(given.get("maxBytes", DEFAULT_BYTES))), VALUE.size)
    try:
        with opened_file(place) as descriptor, open(descriptor, "rb", closefd=False) as file:
            text = file.read(most + 1)
            size = max(file.seek(0, 2), len(text))
    except OSError as error:
        raise _failed(place, error) from None
    cut = len(text) > most
    answer = {"path": str(place.path), "size": size, "truncated": True, "content": decoded(text[:most], is_cut=cut)}
    return answer | {"truncated": cut_to_output(answer, "content") or cut}


def write(ctx: ToolContext, given: dict[str, Json]) -> Json:
    """Answer `{path, size, written}`. Missing folders are made."""
    place, content = confined(ctx, needed(given, "path")), needed(given, "content").encode("utf-8", "replace")
    if len(content) > MOST_BYTES:
        raise ToolFailure(f"The content has more than {MOST_BYTES} bytes.", name="ContentTooLarge")
    try:
        replace_file(place, content, unique=ctx.tool_call_id)
    except OSError as error:
        raise _failed(place, error) from None
    return {"path": str(place.path), "size": len(content), "written": True}


def _failed(place: Confined, error: OSError) -> ToolFailure:
    """Return the failure, with the path and a reason. A symbolic link on the way is ELOOP or ENOTDIR."""
    reason = _REASONS.get(type(error), "The file cannot be used: a symbolic link, or an error of the file system")
    return ToolFailure(f"{reason}: {place.path}", name=type(error).__name__)


handlers = {"read": read, "write": write}
