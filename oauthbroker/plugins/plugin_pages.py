"""Operators' pages of a plug-in, below `/admin/plugins/<plugin>`. These names are public on
`oauthbroker.plugins`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from oauthbroker.core.dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPageRequest:
    """One request of a signed-in operator. `path` has the variables of the page's path, `query` the last value of each
    name, and `words` the plug-in's words in the operator's language, each an attribute."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    words: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginView:
    """A page to render: `<template>.html` of the plug-in's folder, which has the values as `view`."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)


class ShowsPage(Protocol):
    """Return the page for a request. Raises `BrokerError`, such as `notFound`."""

    def __call__(self, page_request: PluginPageRequest, /) -> Awaitable[PluginView]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPage:
    """A path below `/admin/plugins/<plugin>`, such as `/shelves/{shelf}`. The empty one is the page that the navigation
    leads to."""

    path: str
    handler: ShowsPage


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPages:
    """The pages of a plug-in. `folder` has its templates, and `words/en.json`; the word `nav` is its link in the
    navigation. The broker signs operators in, and gives each page its layout and its headers."""

    folder: Path
    pages: Sequence[PluginPage]
