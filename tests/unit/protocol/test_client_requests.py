"""Several client secrets in order: the next one is tried when it is safe, once, and what works is remembered."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.client_auth import authenticated_post
from oauthbroker.protocol.client_requests import ClientRequests, refuses_client
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, reveal
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, answer, assert_clean, with_habits

UNKNOWN = answer({"error": "invalid_client"}, 401)
TOKENS = answer({"access_token": "a", "token_type": "bearer"})
FORM = "application/x-www-form-urlencoded"


class Wire:
    """A transport that answers from a list and keeps which secret each request carried."""

    def __init__(self, clock: TestClock, answers: Iterable[ProviderResponse | Exception], takes: float = 0) -> None:
        self.clock, self.answers, self.takes = clock, list(answers), takes
        self.used: list[str] = []
        self.seconds: list[float] = []

    async def send(self, request: ProviderRequest, *, seconds: float, max_bytes: int) -> ProviderResponse:
        assert request.form is not None
        self.used.append(reveal(request.form["client_secret"]))  # type: ignore[arg-type]
        self.seconds.append(seconds)
        await self.clock.sleep(self.takes)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


def app_with(*secrets: str, name: str = "shop", habits: Habits | None = None) -> App:
    first, *later = map(Secret, secrets)
    client = Client("client-1", first, "client_secret_post", later_secrets=tuple(later))
    return dataclasses.replace(APP, name=name, client=client, habits=habits or Habits())


class Desk:
    """Client requests over a wire, with their log."""

    def __init__(self, *answers: ProviderResponse | Exception, takes: float = 0) -> None:
        self.clock = TestClock()
        self.wire = Wire(self.clock, answers, takes)
        self.reported: list[tuple[str, int, int]] = []
        wire: Any = self.wire
        self.asker = ClientRequests(
            transport=wire, clock=self.clock, limits=Limits(), on_changed=lambda *said: self.reported.append(said)
        )

    async def ask(self, app: App, **more: Any) -> ProviderResponse:
        def build(known: App) -> ProviderRequest:
            return authenticated_post(known, known.endpoints, known.endpoints.token_url, {}, self.clock)

        return await self.asker.ask(app, build, **more)


async def test_the_first_secret_is_used_while_it_works() -> None:
    desk = Desk(TOKENS, TOKENS)
    assert [TOKENS, TOKENS] == [await desk.ask(app_with("one", "two")) for _ in range(2)]
    assert (["one", "one"], []) == (desk.wire.used, desk.reported)


async def test_a_refused_secret_is_followed_by_the_next_which_is_remembered_and_logged_once() -> None:
    desk = Desk(UNKNOWN, TOKENS, TOKENS, TOKENS)
    app = app_with("one", "two", "three")
    assert [TOKENS] * 3 == [await desk.ask(app) for _ in range(3)]
    assert (["one", "two", "two", "two"], [("shop", 1, 2)]) == (desk.wire.used, desk.reported)


async def test_when_the_remembered_one_ends_the_list_is_walked_on_and_around() -> None:
    desk = Desk(UNKNOWN, TOKENS, UNKNOWN, TOKENS, TOKENS)
    app = app_with("one", "two")
    for _ in range(3):
        await desk.ask(app)
    assert ["one", "two", "two", "one", "one"] == desk.wire.used
    assert [("shop", 1, 2), ("shop", 2, 1)] == desk.reported


async def test_every_secret_is_tried_at_most_once_and_then_the_refusal_stands() -> None:
    desk = Desk(*[UNKNOWN] * 6)
    assert [UNKNOWN, UNKNOWN] == [await desk.ask(app_with("one", "two", "three")) for _ in range(2)]
    assert (["one", "two", "three"] * 2, []) == (desk.wire.used, desk.reported)


@pytest.mark.parametrize(
    "refusal",
    [
        answer({"error": "invalid_grant"}, 400),
        answer({"error": "unauthorized_client"}, 400),
        answer({"error": "invalid_request"}, 401),
        answer({"error": "temporarily_unavailable"}, 400),
        answer({"error": ["invalid_client"]}, 400),
        answer(b"invalid_client", 400),
        answer({"error": "invalid_client"}, 503),
        answer({"error": "invalid_client"}, 429),
        answer({"error": "invalid_client"}, 302),
        answer(b"", 403),
    ],
)
async def test_no_other_answer_is_asked_for_twice(refusal: ProviderResponse) -> None:
    """The code or the refresh token in the request may have been looked at, or may still be."""
    desk = Desk(refusal, TOKENS)
    assert refusal is await desk.ask(app_with("one", "two"))
    assert ["one"] == desk.wire.used


@pytest.mark.parametrize(
    "refusal",
    [
        answer({"error": "invalid_client"}, 400),
        answer({"error": "invalid_client"}, 401),
        answer({"error": "invalid_client"}, 401, "text/html"),
        answer(b"<h1>Unauthorized</h1>", 401, "text/html"),
        answer(b"", 401),
        answer({"error": "incorrect_client_credentials"}, 200),
        answer({"ok": False, "error": "bad_client_secret"}, 200),
    ],
)
async def test_the_ways_to_say_that_a_client_is_unknown(refusal: ProviderResponse) -> None:
    """RFC 6749's, and a provider's own words where its preset gives their meaning."""
    desk = Desk(refusal, TOKENS)
    habits = Habits(
        error_words={"incorrect_client_credentials": "invalid_client", "bad_client_secret": "invalid_client"}
    )
    assert TOKENS is await desk.ask(app_with("one", "two", habits=habits))


def test_a_form_says_it_too_where_forms_are_agreed() -> None:
    said = answer(b"error=invalid_client", 200, FORM)
    assert refuses_client(with_habits(token_response_format="form"), said)
    assert not refuses_client(APP, said)


async def test_a_lost_answer_is_never_followed_by_another_secret() -> None:
    desk = Desk(TransportFailed("no answer in time", sent=True), TOKENS)
    with pytest.raises(TransportFailed) as failed:
        await desk.ask(app_with("one", "two"))
    assert failed.value.sent
    assert_clean(failed.value)
    assert ["one"] == desk.wire.used


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_provider_that_is_busy_has_not_taken_the_secret(status: int) -> None:
    desk = Desk(UNKNOWN, answer(b"", status), UNKNOWN, TOKENS)
    app = app_with("one", "two")
    assert status == (await desk.ask(app)).status
    assert [] == desk.reported
    assert TOKENS is await desk.ask(app)
    assert (["one", "two", "one", "two"], [("shop", 1, 2)]) == (desk.wire.used, desk.reported)


async def test_a_refusal_of_the_scopes_proves_the_secret() -> None:
    desk = Desk(UNKNOWN, answer({"error": "invalid_grant"}, 400), TOKENS)
    app = app_with("one", "two")
    assert 400 == (await desk.ask(app)).status
    assert TOKENS is await desk.ask(app)
    assert ["one", "two", "two"] == desk.wire.used


async def test_all_attempts_share_one_deadline() -> None:
    desk = Desk(UNKNOWN, UNKNOWN, UNKNOWN, takes=4)
    assert UNKNOWN is await desk.ask(app_with("one", "two", "three", "four"))
    assert ([10, 6, 2], ["one", "two", "three"]) == (desk.wire.seconds, desk.wire.used)


async def test_apps_do_not_learn_from_one_another_and_a_changed_client_begins_anew() -> None:
    desk = Desk(UNKNOWN, *[TOKENS] * 4)
    await desk.ask(app_with("one", "two"))
    await desk.ask(app_with("one", "two", name="other"))
    await desk.ask(app_with("new", "two"))
    await desk.ask(app_with("one", "two"))
    assert ["one", "two", "one", "new", "two"] == desk.wire.used


async def test_a_public_client_is_asked_for_once() -> None:
    desk = Desk(UNKNOWN)
    desk.wire.send = _first_of(desk.wire.answers)  # type: ignore[method-assign]
    app = dataclasses.replace(APP, client=Client("client-1", None, "none"))
    assert UNKNOWN is await desk.ask(app)


def _first_of(answers: list[Any]) -> Any:
    async def send(request: ProviderRequest, *, seconds: float, max_bytes: int) -> ProviderResponse:
        said: ProviderResponse = answers.pop(0)
        return said

    return send


def test_an_asker_prints_no_secret() -> None:
    app = app_with("canary-one", "canary-two")
    assert "canary" not in repr(app.client) + json.dumps(app.config_digest)


@pytest.mark.parametrize("status, refused", [(401, True), (400, False)])
def test_the_word_of_older_servers_of_mcp_for_an_unknown_client_counts_there_alone(status: int, refused: bool) -> None:
    said, app = (
        answer({"error": "unauthorized_client"}, status),
        dataclasses.replace(APP, mcp=McpServer("https://m.example")),
    )
    assert refused == refuses_client(app, said)
    assert not refuses_client(APP, said)


class Registered:
    """Notes how clients of MCP servers' apps were answered."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, bool]] = []

    async def answered(self, app: App, *, refused: bool) -> None:
        self.noted.append((app.name, refused))


@pytest.mark.parametrize(
    "answers, is_mcp, noted",
    [
        ([TOKENS], True, [("shop", False)]),
        ([UNKNOWN, UNKNOWN], True, [("shop", True)]),
        ([UNKNOWN, TOKENS], True, [("shop", False)]),
        ([answer({"error": "invalid_grant"}, 400)], True, [("shop", False)]),
        ([answer({}, 429)], True, []),
        ([answer({}, 503)], True, []),
        ([TOKENS], False, []),
        ([UNKNOWN, UNKNOWN], False, []),
    ],
)
async def test_who_registers_clients_is_told_whether_the_server_of_an_mcp_app_knows_them(
    answers: list[ProviderResponse], is_mcp: bool, noted: list[tuple[str, bool]]
) -> None:
    desk, registered = Desk(*answers), Registered()
    desk.asker.registrations = registered
    app = app_with("one", "two")
    await desk.ask(dataclasses.replace(app, mcp=McpServer("https://m.example")) if is_mcp else app)
    assert noted == registered.noted


@pytest.mark.parametrize(
    "status, word, refused",
    [
        *((status, "invalid_client", True) for status in (200, 400, 401, 403)),
        *((status, "invalid_client", False) for status in (404, 500)),
        *((status, "", False) for status in (400, 403)),
        (401, "", True),
        (401, "invalid_grant", False),
    ],
)
def test_a_client_is_refused_by_a_word_with_four_statuses_and_by_401_without_one(
    status: int, word: str, refused: bool
) -> None:
    assert refused is refuses_client(APP, answer({"error": word} if word else {}, status))
