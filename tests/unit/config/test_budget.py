"""How many fields a user can write: each is something to read about, so their number has a bound for each kind.

A field is a path of names to a value. A value source and a reference are one value each. Sum: 292 in the broker's own kinds, 401
with those of the plug-ins of this package.
"""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from oauthbroker.config.plugins.named_plugins import plugins_of
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.fields import ObjectRef
from oauthbroker.config.written.resource_specs import models_in

PLUGINS = ("flowtools", "gateway", "integrations", "mcp", "tools")
MOST = {
    ("OAuthApp", ""): 130,  # 51 of them quirks, 9 endpoints, 13 facts of a connection, 5 connectParams and accounts
    ("CredentialApp", ""): 51,  # 22 of them forms of inject
    ("Broker", ""): 89,  # 5 of them the outgoing proxy
    ("Forwarder", ""): 8,
    ("Tool", ""): 5,
    ("Connector", ""): 3,
    ("Extension", ""): 3,
    ("Connection", ""): 3,
    ("ActionSchema", "gateway"): 47,
    ("FlowService", "flowtools"): 27,
    ("Tool", "tools"): 10,
    ("Swarm", "tools"): 6,
    ("McpServer", "mcp"): 7,
    ("Agent", "tools"): 5,
    ("Model", "tools"): 4,
    ("Extension", "tools"): 2,
    ("Connector", "tools"): 1,
}
READERS = {
    (kind, reader.plugin): reader.model
    for kind, readers in plugins_of(PLUGINS).kinds.readers.items()
    for reader in readers
}


def fields_of(model: type[BaseModel]) -> int:
    count = 0
    for field in model.model_fields.values():
        below = [each for each in models_in(field.annotation) if not issubclass(each, ValueSource | ObjectRef)]
        count += sum(map(fields_of, below)) or 1
    return count


@pytest.mark.parametrize("kind, plugin", READERS, ids=" ".join)
def test_a_kind_keeps_to_its_number_of_fields(kind: str, plugin: str) -> None:
    assert fields_of(READERS[kind, plugin]) <= MOST[kind, plugin]


def test_the_sums_on_this_page_are_those_of_the_table() -> None:
    own = sum(most for (_, plugin), most in MOST.items() if not plugin)
    assert f"{own} in the broker's own kinds, {sum(MOST.values())}\n" in str(__doc__)
