"""Conversations of several users on one orchestrator: no agent of one reads the messages, files or values of another."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from unicodedata import normalize
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from oauthbroker import Turn, TurnAuth
from oauthbroker.tools.calling.context import AgentRuntime
from oauthbroker.tools.orchestration import processes
from oauthbroker.tools.orchestration.instances import NAMED, Instance, _digest
from oauthbroker.tools.turns import conversation
from tests.kit.agent_bundle import plan
from tests.kit.forms import is_long
from tests.story.agent_world import AgentWorld, agent_world, turn_of
from tests.story.agents_here import REMEMBERING, AgentHere

PIECES = [
    "a", "A", "bob", "::", ":", "/", "\\", " ", "\t", "\n", "\0", "\x1f", "\x1e", "|", ",", '"', "[", "]", "named", "..", "%2F", "~",
    "\u00e9", "e\u0301", "\uff21", "\u200b", "\u00ad", "\u0130", "\u0131", "\u00df", "\ufb01", "\uac00", "\u1100\u1161", "call-", "{", "$",
]  # fmt: skip
words = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
TWINS: list[Callable[[str], str]] = [
    *(lambda key, form=form: normalize(form, key) for form in ("NFC", "NFD", "NFKC", "NFKD")),
    str.upper, str.lower, str.casefold, str.strip,
    *(lambda key, end=end: f"{key}{end}" for end in ("::bob", "::BOB", " ", "\u200b", "\x1f", "\x1fbob", "/bob", "/", '", "bob"]')),
    *(lambda key, begin=begin: f"{begin}{key}" for begin in (" ", "::", "Swarm/default\x1fwriter\x1f", "writer/", '["')),
    lambda key: json.dumps([key, "bob"]), lambda key: f"named{json.dumps([key])}", lambda key: key * 2,
]  # fmt: skip


CONVERSATIONS = 20 if is_long() else 8


def _chosen(bases: list[str]) -> list[str]:
    """Return a key for each conversation, all of them twins where there are so many. None has the form that the runtime
    keeps."""
    twins = [twin(base) for base in bases for twin in TWINS]
    unique = dict.fromkeys(each for each in [*bases, *twins] if each and not each.startswith(NAMED))
    return list(unique)[:CONVERSATIONS]


lists = st.lists(words, min_size=1, max_size=3, unique=True).map(_chosen)
keys = lists.filter(lambda found: len(found) == CONVERSATIONS)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with agent_world(tmp_path, files=REMEMBERING) as running:
        yield running


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentWorld]:
    monkeypatch.setattr(processes, "AgentProcess", AgentHere)
    async with agent_world(tmp_path, files=REMEMBERING) as running:
        yield running


@pytest.mark.rule("turns.ours-19")
@pytest.mark.parametrize(("bob", "alice", "name"), [("slack::BOB", "slack::ALICE", None), ("team::bob", "team", "bob")])
async def test_a_key_of_a_channel_that_holds_a_separator_is_one_conversation(world, bob, alice, name):
    await world.called("others__request", {"target": "writer", "input": "the secret of Bob"}, turn_of(bob))
    asked = {"target": "writer", "input": "what do you know?"} | ({} if name is None else {"instanceKey": name})
    reported = await world.called("others__request", asked, turn_of(alice))
    assert ["what do you know?"] == json.loads(reported["response"])


async def _refused(world: AgentWorld, of: Turn, kind: str = "chat.message", **payload: Any) -> Any:
    """Queue an event and return its outcome's code; None if a turn answered."""
    event_id = await world.broker.events.enqueue("writer", kind, {"input": "look", **payload}, turn=of)
    return (await world.outcome(event_id)).get("error", {}).get("code")


@pytest.mark.rule("turns.ours-19", "turns.ours-28")
async def test_a_channel_does_not_reach_an_instance_that_an_agent_has_named(here):
    asked = {"target": "writer", "instanceKey": "bob"}
    await here.called("others__request", {**asked, "input": "the secret"})
    named = Instance("Swarm/default", "writer", "thread-1", spawned="bob")
    for key in named.key, named.key.replace(" ", ""), f"{NAMED}", f'{NAMED}a", "b", "c"]', f"{NAMED}{'[' * 30_000}":
        assert "E_TURN_REFUSED" == await _refused(here, turn_of(key, "writer")), key[:40]
    assert await _refused(here, turn_of(named.key, "writer"), "job.done") == "E_TURN_REFUSED"
    assert await _refused(here, turn_of(named.key, "writer"), "tool.completed") is None, "the end of its own work"
    reported = json.loads((await here.called("others__request", {**asked, "input": "look"}))["response"])
    assert ["the secret", "look", "look"] == [text for text in reported if not text.startswith("[")]


@pytest.mark.rule("turns.ours-19", "turns.ours-28")
@pytest.mark.parametrize("kind", ["agent.message", "agent.request"])
@pytest.mark.parametrize(
    ("sender", "key", "code"),
    [
        ("thread-1", "thread-1", None),
        ("thread-1", 'named["thread-1", "poems"]', None),
        ('named["thread-1", "poems"]', "thread-1", None),
        ("thread-1", "thread-1::poems", "E_TURN_REFUSED"),  # as earlier versions wrote the key of a named instance
        ("thread-1::poems", "thread-1", "E_TURN_REFUSED"),
        ("thread-2", 'named["thread-1", "poems"]', "E_TURN_REFUSED"),
        (None, 'named["thread-1", "poems"]', "E_TURN_REFUSED"),
    ],
)
async def test_an_event_of_an_agent_stays_in_its_conversation(here, kind, sender, key, code):
    source = {"kind": "agent", "name": "planner", "instanceKey": sender}
    assert code == await _refused(here, turn_of(key, "writer"), kind, source=source)


@pytest.mark.rule("turns.ours-19")
async def test_the_folder_of_a_spawned_instance_is_not_followed_out_of_its_conversation(here):
    for thread in "thread-1", "thread-2":
        await here.reported(kept(f"<{thread}>"), turn_of(thread))
    drafts = here.workdir() / "drafts"
    drafts.mkdir()
    await here.called("others__spawn", {"target": "writer", "instanceKey": "bob", "cwd": "drafts"})
    drafts.rmdir()
    drafts.symlink_to(here.workdir(instance="thread-2"))
    reported = await here.called("others__request", {"target": "writer", "instanceKey": "bob", "input": kept("mine")})
    assert "mine" in reported["response"]
    assert "<thread-2>" not in reported["response"]


keys_and_names = st.tuples(words, st.none() | words).filter(lambda each: not each[0].startswith(NAMED))


@given(st.lists(keys_and_names, min_size=2, max_size=2, unique=True))
def test_each_instance_has_a_key_and_a_digest_of_its_own_and_is_found_by_its_key(pairs):
    instances = [Instance("Swarm/default", "writer", key, spawned=name) for key, name in pairs]
    assert instances == [Instance.of(Turn("writer", each.key)) for each in instances]
    assert 2 == len({each.key for each in instances}) == len({each.digest for each in instances})


@example(["a\x1fb"])
@given(st.lists(st.lists(st.sampled_from([*PIECES, ""]), max_size=3).map("".join), min_size=1, max_size=3))
def test_names_have_another_digest_however_their_separators_are_placed(names):
    joined = "\x1f".join(names)
    others = [joined.split("\x1f", len(names) - 1), [json.dumps(names), *names[1:]], names[::-1]]
    for other in others:
        assert (other == names) == (_digest(*other) == _digest(*names)) or len(other) != len(names)


def test_digests_of_names_without_the_separator_are_those_that_stores_have():
    instance = Instance("Swarm/default", "planner", "thread-1")
    assert hashlib.sha256(b"Swarm/default\x1fplanner\x1fthread-1").hexdigest()[:32] == instance.digest


@pytest.mark.parametrize("key", [NAMED, f'{NAMED}a","b"]', f'{NAMED}a", 1]', f'{NAMED}a", "b"] ', f'{NAMED}a", "b"]'])
def test_a_conversation_cannot_be_made_with_the_key_of_a_named_instance(key):
    with pytest.raises(ValueError, match="choose another key for the conversation"):
        Instance("Swarm/default", "writer", key)
    if key != Instance("Swarm/default", "writer", "a", spawned="b").key:
        with pytest.raises(ValueError, match="choose another key for the conversation"):
            Instance.of(Turn("writer", key))


@pytest.mark.rule("turns.ours-15")
async def test_the_same_message_number_in_two_conversations_is_two_events(here):
    secret, other = await here.say("the secret", turn_of("a"), key="1"), await here.say("look", turn_of("b"), key="1")
    assert [["the secret"], ["look"]] == [json.loads((await here.outcome(each))["answer"]) for each in (secret, other)]


@pytest.mark.rule("002-2.6-4", "002-11.3-2", "turns.ours-27")
async def test_each_request_message_and_instance_of_one_call_is_its_own(here, monkeypatch):
    queued: list[dict[str, Any]] = []
    enqueue = type(here.broker.events).enqueue

    async def watched(self: Any, agent: str, kind: str, payload: Any, **more: Any) -> Any:
        queued.append(payload)
        return await enqueue(self, agent, kind, payload, **more)

    monkeypatch.setattr(type(here.broker.events), "enqueue", watched)
    asks = [("one", None), ("two", None), ("two", None), ("one", "bob")]
    reported = await here.called("many__ask", {"target": "writer", "asks": asks})
    assert ["one", "two", "two", "one"] == [json.loads(each)[-1] for each in reported]
    assert ["one", "two", "two"] == [text for text in json.loads(reported[2]) if not text.startswith("[")]
    assert 4 == len({each["replyTo"]["correlationId"] for each in queued if "replyTo" in each})
    await here.called("many__tell", {"target": "writer", "asks": [("three", None), ("three", None)]})
    look = {"target": "writer", "input": "look"}
    seen = json.loads((await here.called("others__request", look))["response"])
    assert 2 == seen.count("three")
    made = await here.called("many__spawn", {"target": "writer", "names": [None, None]})
    assert 2 == len({each["instanceKey"] for each in made})


@pytest.mark.rule("turns.ours-27")
async def test_a_handler_that_is_repeated_names_its_requests_as_before():
    asked: list[Any] = []

    async def ask(kind: str, payload: Any) -> None:
        asked.append((kind, payload))

    for _ in range(2):
        runtime = AgentRuntime(ask, "call-1")
        await runtime.request("writer", "one", instance_key=None, timeout=1)
        await runtime.send("writer", "one", instance_key=None)
    assert asked[:2] == asked[2:]
    assert ["call-1.1", "call-1.2"] == [payload["requestId"] for _, payload in asked[:2]]


async def test_a_request_never_has_the_answer_of_another_turn_with_the_same_id(here, monkeypatch):
    monkeypatch.setattr(conversation, "_call_id", lambda *_: "call-1")
    asks = {"target": "writer", "asks": [("the secret", None)]}
    await here.called("many__ask", asks, turn_of("a"))
    for thread in "a", "b":
        (reported,) = await here.called("many__ask", {**asks, "asks": [("look", None)]}, turn_of(thread))
        assert "look" == json.loads(reported)[-1]
        assert (thread == "a") == ("the secret" in reported)


def of_user(number: int, key: str, agent: str = "planner") -> Turn:
    auth = TurnAuth({"type": "user", "id": f"slack:U{number % 2}"}, {"user": f"slack:user:T1:U{number % 2}"})
    return Turn(agent, key, "Swarm/default", origin={"channel": f"C{number}"}, auth=auth)


NAMES = (None, "bob", "BOB")


def kept(text: str) -> str:
    return plan(("values__keep", {"text": text}))


async def _reported(world: AgentWorld, of: Turn, secret: str) -> None:
    """Say the secret of a conversation to its planner and to its writers, who keep it in file and value."""
    asks = [(text, name) for name in NAMES for text in (secret, kept(secret))]
    sends: list[tuple[str, str | None]] = [(secret, "sent"), (secret, None)]
    for text in secret, kept(secret):
        await world.reported(text, of)
    for tool, args in {"ask": {"asks": asks}, "tell": {"asks": sends}}.items():
        await world.called(f"many__{tool}", {"target": "writer", **args}, of)
    await world.called("many__spawn", {"target": "writer", "names": ["poems"]}, of)


async def _seen(world: AgentWorld, of: Turn, others: list[str]) -> list[str]:
    """Return what the agents of a conversation see: its own ones first, then those of names of other conversations."""
    tails = {"".join(char for char in each if char.isascii() and char.isalnum()) for each in others} - {""}
    asks = [(text, name) for name in (*NAMES, *sorted(tails)[:2]) for text in ("look", kept(""))]
    own = [await world.reported(text, of) for text in ("look", kept(""))]
    reported = await world.called("many__ask", {"target": "writer", "asks": [("look", "sent"), *asks]}, of)
    listed = await world.called("others__list", {"includeAll": True}, of)
    return [*own, *reported, json.dumps(listed)]


async def _law(secrets: dict[str, str]) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder, patch.object(processes, "AgentProcess", AgentHere):
        async with agent_world(Path(folder), files=REMEMBERING) as world:
            turns = [of_user(number, key) for number, key in enumerate(secrets)]
            at_once = asyncio.Semaphore(6)  # a call of a slow machine ends within its time

            async def one(work: Coroutine[Any, Any, Any]) -> Any:
                async with at_once:
                    return await work

            await asyncio.gather(*(one(_reported(world, of, secrets[of.instance_key])) for of in turns))
            seen = await asyncio.gather(*(one(_seen(world, of, list(secrets))) for of in turns))
            return dict(zip(secrets, seen, strict=True))


@pytest.mark.slow
@pytest.mark.rule("turns.ours-19")
@settings(
    max_examples=20 if is_long() else 2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # an example is many conversations: shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)
@given(keys)
def test_no_agent_sees_what_another_conversation_has_said_or_kept(found: list[str]) -> None:
    secrets = {key: f"<secret {number}>" for number, key in enumerate(found)}
    for key, seen in asyncio.run(_law(secrets)).items():
        assert {secrets[key]} == {secret for secret in secrets.values() if secret in "\n".join(seen)}, key
        missing = [place for place, text in enumerate(seen[: 3 + 2 * len(NAMES)]) if secrets[key] not in text]
        assert [] == missing, "each instance sees its own"
