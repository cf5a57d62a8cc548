"""`oauthbroker api-keys`: a key is seen once, on stdout, and lives as long as it was told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.config import load
from oauthbroker.core.clock import from_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.testing import Canaries
from oauthbroker.wiring import open_vault
from tests.kit.cli import Desk, command
from tests.kit.running_broker import tree


@pytest.fixture
def ready(desk: Desk, canaries: Canaries) -> Desk:
    canaries.may_show("API key")
    assert 0 == desk.type("init").code
    return desk


def at_the_store(desk: Desk, work: Callable[[ApiKeys], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with open_vault(load(desk.folder / "config").settings, env={}) as vault:
            return await work(vault.api_keys)

    return asyncio.run(run())


def roles_of(desk: Desk, text: str) -> set[str] | None:
    """What the key is good for; None for a key that is none (any more)."""
    try:
        return set(at_the_store(desk, lambda keys: keys.check(text)).roles)
    except BrokerError as error:
        if error.code is Code.UNAUTHENTICATED:
            return None
        raise


def made(desk: Desk, canaries: Canaries, *words: str) -> dict[str, Any]:
    done = desk.type("api-keys", *words, "--json")
    assert 0 == done.code, done.err
    reported: dict[str, Any] = json.loads(done.out)
    canaries.add(reported["key"], "API key")
    assert reported["key"] not in done.err
    return reported


def listed(desk: Desk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(desk.type("api-keys", "list", "--json").out)
    return found


def test_stdout_has_the_key_and_nothing_else(ready: Desk, canaries: Canaries):
    done = ready.type("api-keys", "create", "planner-runtime")
    key = done.out.removesuffix("\n")
    canaries.add(key, "API key")
    assert {"runtime"} == roles_of(ready, key)
    assert key not in done.err
    assert "It is not shown again." in done.err
    [reported] = listed(ready)
    assert ("planner-runtime", ["runtime"], "live", None) == (
        reported["name"], reported["roles"], reported["state"], reported["expiresAt"],
    )  # fmt: skip


@pytest.mark.case("89")
def test_the_key_is_nowhere_in_the_store(ready: Desk, canaries: Canaries):
    key = made(ready, canaries, "create", "planner", "--role", "operator")["key"].encode()
    assert key.split(b".")[-1] not in b"".join(tree(ready.folder).values())


def test_in_json_a_key_comes_with_its_record(ready: Desk, canaries: Canaries):
    reported = made(ready, canaries, "create", "ops", "--role", "operator", "--role", "runtime", "--expires", "90d")
    assert {"id", "name", "roles", "expiresAt", "key"} == reported.keys()
    assert ["operator", "runtime"] == reported["roles"]
    [there] = listed(ready)
    assert timedelta(days=90) == from_iso(there["expiresAt"]) - from_iso(there["createdAt"])
    assert {"operator", "runtime"} == roles_of(ready, reported["key"])


def test_rotating_leaves_the_old_one_alive_for_the_overlap(ready: Desk, canaries: Canaries):
    old = made(ready, canaries, "create", "planner", "--role", "operator", "--expires", "30d")
    new = made(ready, canaries, "rotate", "planner", "--overlap", "1h")
    assert ({"operator"}, {"operator"}) == (roles_of(ready, old["key"]), roles_of(ready, new["key"]))
    ends = {it["id"]: from_iso(it["expiresAt"]) for it in listed(ready)}
    assert timedelta(minutes=59) < ends[old["id"]] - from_iso(listed(ready)[0]["createdAt"]) < timedelta(minutes=61)
    assert ends[new["id"]] - ends[old["id"]] > timedelta(days=29), (
        "a key that had an end is not replaced by one without"
    )
    newest = made(ready, canaries, "rotate", "planner", "--overlap", "0s", "--expires", "5d")
    assert (None, None, {"operator"}) == tuple(roles_of(ready, it["key"]) for it in (old, new, newest))
    assert ["expired", "expired", "live"] == sorted(it["state"] for it in listed(ready))


def test_one_without_an_end_is_replaced_by_one_without(ready: Desk, canaries: Canaries):
    made(ready, canaries, "create", "planner")
    assert made(ready, canaries, "rotate", "planner")["expiresAt"] is None


def test_removing_ends_it_at_once_and_asks_first(ready: Desk, canaries: Canaries):
    key = made(ready, canaries, "create", "planner")
    assert "at least 6 characters" in ready.type("api-keys", "remove", key["id"][:8]).err
    refused = ready.type("api-keys", "remove", key["id"])
    assert (2, True) == (refused.code, "say --yes" in refused.err)
    assert {"runtime"} == roles_of(ready, key["key"])
    done = ready.type("api-keys", "remove", key["id"][:12], "--yes")
    assert (0, f"Removed {key['id']} of planner.\n") == (done.code, done.out)
    assert roles_of(ready, key["key"]) is None
    assert [] == listed(ready)
    assert "There are no API keys." in ready.type("api-keys", "list").err


def test_a_damaged_key_is_removed_by_its_whole_id(ready: Desk, canaries: Canaries):
    key = made(ready, canaries, "create", "planner")
    (file,) = [path for path in ready.folder.rglob("apikeys/*") if path.is_file()]
    file.write_bytes(b"damaged")
    assert [] == listed(ready)
    assert (2, True) == ((it := ready.type("api-keys", "remove", key["id"])).code, "say --yes" in it.err)
    done = ready.type("api-keys", "remove", key["id"], "--yes")
    assert (0, f"Removed {key['id']}.\n") == (done.code, done.out)
    assert not file.exists()
    assert "There is no key key-" in ready.type("api-keys", "remove", key["id"], "--yes").err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "a b"), "requestInvalid"),
        (("create", "planner", "--role", "king"), "king"),
        (("create", "planner", "--expires", "90"), "90d, 24h, 30m or 45s"),
        (("create", "planner", "--expires", "0d"), "requestInvalid"),
        (("create", "planner", "--expires", "99999d"), "requestInvalid"),
        (("rotate", "planner"), "There is no key of the name planner."),
        (("rotate", "planner", "--overlap", "soon"), "90d, 24h, 30m or 45s"),
        (("remove", "key-1234567", "--yes"), "There is no key key-1234567."),
        (("remove", "key-nope", "--yes"), "There is no key key-nope."),
    ],
)
def test_an_ambiguous_request_is_refused_and_nothing_changes(ready: Desk, words: tuple[str, ...], says: str):
    ready.type("api-keys", "list")
    before = {name: data for name, data in tree(ready.folder).items() if not name.endswith("audit.jsonl")}
    done = ready.type("api-keys", *words)
    assert (2, "") == (done.code, done.out)
    assert says in " ".join(done.err.replace("│", " ").split())
    assert before == {name: data for name, data in tree(ready.folder).items() if not name.endswith("audit.jsonl")}


@pytest.mark.slow
def test_a_script_gets_the_key_by_a_substitution(ready: Desk, canaries: Canaries):
    done = command("api-keys", "create", "planner", cwd=ready.folder)
    canaries.add(done.out.strip(), "API key")
    assert {"runtime"} == roles_of(ready, done.out.strip())
