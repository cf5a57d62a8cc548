"""Any bundle loads or is refused: no other exception, no endless loop, no value in a message."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.reading.shaping import _words
from tests.kit.forms import examples
from tests.kit.plugins_installed import SAMPLE, on_path
from tests.unit.config.bundles import APP, BROKER, CANARY, CONNECTOR, GLOBAL, TOOL, everything_said

PLUGINS = BROKER + "  plugins: [sample]\n"
NOTES = """
apiVersion: agents.example.io/v1alpha1
kind: Notebook
metadata: {name: red}
spec:
  oauthAppRef: OAuthApp/acme
  nextPage: Notebook/red
  mode: write
  servers:
    home: {url: "https://home.example", token: {valueFrom: {env: HOME_TOKEN}}}
"""
RESOURCES = [yaml.safe_load(text) for text in (APP, PLUGINS, TOOL, CONNECTOR, GLOBAL, NOTES)]
WORDS = st.sampled_from(
    ["", "anyone", "a/b", "{", "{a}", "\x00", "https://a.example", "http://127.0.0.1", "x" * 3000, f"{CANARY} "]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.just(CANARY),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["from", "value", "scopes", "env", "url", CANARY]), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the data that could hold something else."""
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deeper for step, value in steps for deeper in paths(value, (*path, step)))]


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    """Puts the value at the path, unless an earlier change took that place away."""
    with contextlib.suppress(TypeError, KeyError, IndexError):
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value


@pytest.fixture(autouse=True, scope="module")
def sample() -> Iterator[None]:
    with on_path(SAMPLE):
        yield


def test_the_bundle_loads_as_it_is(tmp_path: Path):
    """So each refusal is of a change, and the plug-in's resources are read."""
    (tmp_path / "bundle.yaml").write_text("\n---\n".join(json.dumps(each) for each in RESOURCES), "utf-8")
    assert {"sample"} == load(tmp_path).plugins.keys()


PLACES = [(index, path) for index, resource in enumerate(RESOURCES) for path in paths(resource) if path]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_a_bundle_with_anything_anywhere_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[int, tuple[Any, ...]], Any]]
):
    bundle = copy.deepcopy(RESOURCES)
    for (index, path), value in changes:
        put(bundle[index], path, value)
    file = tmp_path_factory.mktemp("fuzz") / "bundle.yaml"
    file.write_text("\n---\n".join(json.dumps(resource) for resource in bundle), "utf-8")
    outcome: Any = None
    try:
        load(file)
    except ConfigInvalidError as error:
        outcome = error
    assert outcome is None or outcome.problems
    assert outcome is None or CANARY not in everything_said(outcome)


def test_an_error_that_pydantic_may_invent_says_what_can_be_done():
    assert ("not valid here", "correct it, or remove it") == _words("a_new_kind", {})
