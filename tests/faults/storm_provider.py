"""The storm's provider, a process of its own: rotates refresh tokens and ends a family whose token comes twice.

First line on its stdin: its clients and people, as JSON; it answers with a line of where it is. Then each line is one
question or order as a JSON list, answered by one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from oauthbroker.testing import Account, Client, IdentityProvider
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.history import Family
from tests.faults.storm_worker import digest
from tests.kit.running_broker import BASE

SLOW = 0.05
"""Seconds from the rotation of a token to the answer: a process that dies meanwhile has lost it."""


def open_provider(orders: dict[str, Any]) -> IdentityProvider:
    idp = IdentityProvider()
    for name, grace in orders["apps"].items():
        callback = f"{BASE}/oauth/callback/{name}"
        idp.register(
            Client(f"client-{name}", redirect_uris=(callback,), reuse_grace=grace, access_lifetime=orders["lifetime"])
        )
    for number in range(orders["people"]):
        idp.add_account(Account(f"person{number}", f"P{number}"))
    idp.script.refresh.delay(SLOW, times=FOREVER)
    return idp


def figures(idp: IdentityProvider) -> list[dict[str, Any]]:
    """What became of every consent."""
    return [_figures(family) for family in idp.families()]


def _figures(family: Family) -> dict[str, Any]:
    return {
        "app": family.client_id.removeprefix("client-"),
        "person": int(family.login.removeprefix("person")),
        "generation": family.generation,
        "redeemed": dict(family.redeemed),
        "ended_by": family.ended_by,
    }


def refusals(idp: IdentityProvider) -> dict[str, int]:
    return dict(Counter(each.client_id.removeprefix("client-") for each in idp.refusals("refresh_token")))


def reasons(idp: IdentityProvider) -> dict[str, int]:
    return dict(Counter(f"{each.client_id}: {each.why}" for each in idp.refusals("refresh_token")))


def requests(idp: IdentityProvider) -> dict[str, int]:
    return dict(Counter(each.client_id.removeprefix("client-") for each in idp.seen("refresh_token")))


def families(idp: IdentityProvider) -> dict[str, int]:
    """Which consent an access token belongs to, by the token's fingerprint."""
    numbers = {id(family): number for number, family in enumerate(idp._state.token_table.families)}
    tokens = list(idp._state.token_table.tokens.values())
    return {digest(each.text): numbers[id(each.agreement.family)] for each in tokens if each.kind == "access"}


def latest(idp: IdentityProvider, app: str, person: int, most: int = 3) -> list[str]:
    """The last refresh requests for one grant, with their age in seconds, then the last refusals for its app."""
    now, own = datetime.now(UTC), []
    for each in idp.seen("refresh_token", f"client-{app}"):
        sent = each.form.get("refresh_token", "")
        token = idp._state.token_table.tokens.get(sent if isinstance(sent, str) else sent.reveal())
        if token is not None and token.agreement.account.login == f"person{person}":
            own.append(each)
    refused = idp.refusals("refresh_token", f"client-{app}")
    return [
        *(f"asked {(now - each.at).total_seconds():.0f} s ago, generation {each.generation}" for each in own[-most:]),
        *(f"refused {(now - each.at).total_seconds():.0f} s ago: {each.why}" for each in refused[-most:]),
    ]


def change(idp: IdentityProvider, app: str, **fields: Any) -> bool:
    idp.change(f"client-{app}", **fields)
    return True


ORDERS: dict[str, Callable[..., Any]] = {
    "figures": figures,
    "refusals": refusals,
    "requests": requests,
    "reasons": reasons,
    "families": families,
    "latest": latest,
    "change": change,
    "count": IdentityProvider.count,
}


def main() -> None:
    """Serves until its stdin ends."""
    idp = open_provider(json.loads(sys.stdin.readline()))
    with idp:
        secrets = {name: idp.client(name).reveal_secret() for name in (f"client-{app}" for app in _apps(idp))}
        print(json.dumps({"endpoints": idp.endpoints, "secrets": secrets}), flush=True)
        for line in sys.stdin:
            word, given, named = json.loads(line)
            print(json.dumps(ORDERS[word](idp, *given, **named)), flush=True)


def _apps(idp: IdentityProvider) -> list[str]:
    return [client_id.removeprefix("client-") for client_id in idp._state.clients]


if __name__ == "__main__":
    main()
