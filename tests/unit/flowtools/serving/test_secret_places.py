"""The databases of flow tools are files that no tool may read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Secret
from oauthbroker.flowtools import PLUGIN
from oauthbroker.flowtools.serving.data import secret_places
from oauthbroker.plugins import PluginResource, PluginResources
from oauthbroker.plugins.discovery import secret_places_of

STORE = Path("/var/lib/broker/store")


@pytest.mark.parametrize(
    ("url", "files"),
    [
        (None, {"/var/lib/broker/store-flows.db"}),
        ("sqlite:////srv/flows.db", {"/var/lib/broker/store-flows.db", "/srv/flows.db"}),
        ("postgresql://user@host/flows", {"/var/lib/broker/store-flows.db"}),
    ],
)
def test_the_files_of_databases_are_secret_places_with_those_that_sqlite_keeps_beside_them(url, files):
    secrets: dict[Any, Secret] = {} if url is None else {("database",): Secret(url)}
    resources = PluginResources((PluginResource("FlowService", "flows", None, secrets=secrets),))
    found = secret_places_of(PLUGIN, STORE, resources)
    assert {f"{each}{more}" for each in files for more in ("", "-wal", "-shm", "-journal")} == set(found)
    assert [Path(each) for each in found] == secret_places(STORE, resources)
