"""Values of a run as other programs read them: in a URL, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from oauthbroker.flowtools.specification.failures import FlowFailed
from oauthbroker.flowtools.specification.spec import url_slots

_SEGMENT = re.compile(r"(?!\.*$)[^/\\%?#;]{1,256}")


def address(url: str, values: Mapping[str, Any]) -> str:
    """Return a URL with values in place of its slots. Raises FlowFailed for one that another parser could read as more
    than one segment, or as a way up."""
    found = {}
    for slot in url_slots(url):
        text = plain_text(values[slot[1:-1]])
        if not _SEGMENT.fullmatch(text) or not text.isprintable():
            raise FlowFailed("requestInvalid", f"the value of {slot} cannot stand in a URL")
        found[slot] = quote(text, safe="")
    return "/".join(found.get(each, each) for each in url.split("/"))


def plain_text(value: Any) -> str:
    """Return the text of a text, number or truth; a whole number has no point. Raises FlowFailed for others."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise FlowFailed("requestInvalid", "a value of a URL is no text, number or truth")
    return str(whole(value))


def whole(value: Any) -> Any:
    """Return a JSON value with whole numbers as integers: expressions have doubles alone."""
    if isinstance(value, Mapping):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
