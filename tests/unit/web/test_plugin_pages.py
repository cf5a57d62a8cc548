"""Which pages a plug-in may have. Each problem stops the start, with a note that names the plug-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugins.plugin_pages import PluginPage, PluginPageRequest, PluginPages, PluginView
from oauthbroker.plugins.running_plugin import RunningPlugin, problem_of
from oauthbroker.web.html.plugin_pages import pages_of_plugins


async def show(page_request: PluginPageRequest) -> PluginView:
    raise NotImplementedError


def a_folder(folder: Path, words: Any = {"pages": {"nav": "Garden"}}) -> Path:  # noqa: B006
    (folder / "words").mkdir()
    text = words if isinstance(words, str) else json.dumps(words)
    (folder / "words" / "en.json").write_text(text, "utf-8")
    return folder


def pages(folder: Path, *paths: str) -> PluginPages:
    return PluginPages(folder=folder, pages=[PluginPage(path=path, handler=show) for path in paths])


@pytest.mark.parametrize("path", ["/beds", "/beds/{bed}", "/beds/{bed}/dig", "/a-b_c.d"])
def test_sound_pages_are_taken_with_their_words_in_each_language(tmp_path: Path, path: str) -> None:
    (plugin,) = pages_of_plugins({"garden": pages(a_folder(tmp_path), "", path), "orchard": None})
    assert ("/plugins/garden", ["", path]) == (plugin.home, [each.path for each in plugin.pages])
    assert {"Garden"} == {words.nav for words in plugin.words.values()}


@pytest.mark.parametrize(
    "paths",
    [(), ("/beds",), ("", ""), ("", "/beds", "/beds"), ("", "beds"), ("", "/beds/"), ("", "/{bed:path}"), ("", "/a?b")],
)
def test_a_invalid_path_is_refused_with_the_name_of_its_plugin(tmp_path: Path, paths: tuple[str, ...]) -> None:
    with pytest.raises(BrokerError, match="the pages of the plug-in garden: ") as refused:
        pages_of_plugins({"garden": pages(a_folder(tmp_path), *paths)})
    assert Code.CONFIG_INVALID is refused.value.code


@pytest.mark.parametrize(
    "words", [{}, {"pages": {}}, {"pages": {"nav": ""}}, {"pages": 1}, [], "{", {"words": {"nav": "x"}}]
)
def test_a_plugin_without_a_word_for_the_navigation_is_refused(tmp_path: Path, words: Any) -> None:
    with pytest.raises(BrokerError, match=r"the pages of the plug-in garden: words/en\.json"):
        pages_of_plugins({"garden": pages(a_folder(tmp_path, words), "")})


def test_a_folder_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"words/en\.json"):
        pages_of_plugins({"garden": pages(tmp_path, "")})


@pytest.mark.parametrize(
    "given",
    [
        "pages",
        PluginPages(folder="/pages", pages=[]),  # type: ignore[arg-type]
        PluginPages(folder=Path(), pages=["/beds"]),  # type: ignore[list-item]
        PluginPages(folder=Path(), pages=[PluginPage(path="", handler=None)]),  # type: ignore[arg-type]
        PluginPages(folder=Path(), pages=[PluginPage(path=1, handler=show)]),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_reported_when_the_plugin_opens(given: Any) -> None:
    assert "`pages` is a PluginPages, with a folder and a list of PluginPage" == problem_of(RunningPlugin(pages=given))
