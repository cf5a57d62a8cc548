"""Leaks (cases 89-92): loggers at their loudest, exceptions that quote their input, objects that are taken apart."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import line_of
from oauthbroker.authorization.page_results import Step
from oauthbroker.config import ConfigInvalidError, load, resolve
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import decode_object
from oauthbroker.events.port import EventLease
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import Transport, TransportFailed
from oauthbroker.protocol.token_endpoint import token_response
from oauthbroker.records import AuthSession, Grant, PendingCode
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.testing.text_dump import text_of
from oauthbroker.web.gate.csrf import session_cookie_name
from tests.kit.audit import KEYS
from tests.kit.running_broker import Harness, file_store, running, tree, turn, user_app
from tests.kit.samples import app_with, grant_with, session_with, token_with
from tests.story.every_outcome import every_outcome
from tests.unit.config.bundles import APP, write


@pytest.mark.case("89")
@pytest.mark.rule("12.5.3-2")
async def test_no_logger_at_its_loudest_says_a_secret(
    harness: Harness, canaries: Canaries, caplog: pytest.LogCaptureFixture
) -> None:
    """The root logger and every library's own are at level 1; the sweep hears them all and fails the test itself.

    The provider also sends a cookie and a location, which is what HTTP libraries like to log.
    """
    caplog.set_level(1)
    for name in ("httpx2", "httpcore2", "httpcore2.http11", "httpcore2.connection", "asyncio", "authlib", "filelock"):
        caplog.set_level(1, logger=name)
    said = {"set-cookie": f"sid={canaries.mint('cookie').reveal()}", "location": canaries.mint("location").reveal()}
    harness.idp.script.token.answer(400, {"error": "invalid_grant"}, said)
    await harness.connect(await harness.ask_link("files", ["read"]))
    await every_outcome(harness)
    assert 9 == len(await harness.events(count=9))


@pytest.mark.case("89")
async def test_the_sweep_would_have_heard_it(canaries: Canaries) -> None:
    """The control: one secret said at level 1 by any logger is found."""
    secret = canaries.mint("access token")
    assert [] != canaries.search(f"httpx2: GET /?token={secret.reveal()}", "a log line")
    assert 1 == logging.getLogger().level


@pytest.mark.case("89", "92")
async def test_a_whole_story_on_disk_leaves_no_secret_in_any_file(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, canaries: Canaries
) -> None:
    """Store, audit file and log file: everything a backup or a log shipper would carry away."""
    audit = AuditFile(tmp_path, KEYS)
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    async with running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
        ready = await harness.connected()
        asked = await harness.ask_link("files")
        session = await harness.session(asked)
        for kind, secret in _secrets_in(session):
            canaries.add(secret, kind)
        canaries.add(ready.access_token, "access token")
        for at, entry in harness.audit.lines:
            audit.write(entry, at)
        tmp_path.joinpath("broker.log").write_text(harness.log.getvalue())
    audit.close()
    files = tree(tmp_path)
    assert {"audit.jsonl", "broker.log"} <= files.keys()
    assert [] == [find for name, content in files.items() for find in canaries.search(content, name)]


def _secrets_in(session: AuthSession) -> Iterator[tuple[str, str]]:
    attempt = session.attempt
    for kind, secret in (
        ("state", attempt.state),
        ("code verifier", attempt.verifier),
        ("nonce", attempt.nonce),
        ("ticket", session.ticket),
    ):
        if secret is not None:
            yield kind, secret.reveal()


# 90: a provider quotes a wrong request in its answer. None of that may be part of our exceptions.


def _answer(text: str, content_type: str = "application/json") -> ProviderResponse:
    return ProviderResponse(status=200, content_type=content_type, retry_after=None, body=text.encode())


def json_cut_short(secret: str) -> object:
    return decode_object(f'{{"access_token": "{secret}"'.encode(), Code.TOKEN_RESPONSE_INVALID)


def json_twice(secret: str) -> object:
    return decode_object(f'{{"a": "{secret}", "a": 1}}'.encode(), Code.TOKEN_RESPONSE_INVALID)


def json_with_a_number_of_nobody(secret: str) -> object:
    return decode_object(f'{{"a": NaN, "b": "{secret}"}}'.encode(), Code.TOKEN_RESPONSE_INVALID)


def token_of_a_foreign_type(secret: str) -> object:
    return token_response(app_with(), _answer(json.dumps({"access_token": secret, "token_type": "mac"})))


def token_that_is_no_token(secret: str) -> object:
    return token_response(app_with(), _answer(json.dumps({"access_token": secret + "\r\n", "token_type": "bearer"})))


def error_word_with_a_story(secret: str) -> object:
    return token_response(app_with(), _answer(json.dumps({"error": secret, "error_description": secret})))


def form_that_is_none(secret: str) -> object:
    return token_response(_form_app(), _answer(f"access_token={secret}&&=;%zz", "application/x-www-form-urlencoded"))


def grant_of_another_schema(secret: str) -> object:
    body = grant_with(token=token_with()).to_plaintext().replace(b"an-access-token", secret.encode())
    return Grant.from_plaintext(body.replace(b'"schema":1', b'"schema":2'))


def session_cut_short(secret: str) -> object:
    body = session_with().to_plaintext().replace(b"v" * 43, secret.encode())
    return AuthSession.from_plaintext(body[:-5])


def _form_app() -> App:
    app = app_with()
    return dataclasses.replace(app, habits=dataclasses.replace(app.habits, token_response_format="form"))


BORDERS: list[Callable[[str], object]] = [
    json_cut_short,
    json_twice,
    json_with_a_number_of_nobody,
    token_of_a_foreign_type,
    token_that_is_no_token,
    error_word_with_a_story,
    form_that_is_none,
    grant_of_another_schema,
    session_cut_short,
]


def assert_bare(error: BaseException, canaries: Canaries) -> None:
    """Nothing foreign hangs on it, and nothing that can be printed of it holds a secret."""
    assert (None, None) == (error.__cause__, error.__context__)
    assert [] == canaries.search(text_of(error), "what hangs on the error")


@pytest.mark.case("90")
@pytest.mark.parametrize("border", BORDERS, ids=lambda it: it.__name__)
def test_a_refusal_never_quotes_outside_input(border: Callable[[str], object], canaries: Canaries) -> None:
    with pytest.raises(BrokerError) as caught:
        border(canaries.mint("access token").reveal())
    assert_bare(caught.value, canaries)


YAML: dict[str, str] = {
    "broken YAML": "clientSecret: [{secret}",
    "a tag": "x: !!python/object:{secret} 1",
    "an alias": "x: *{secret}",
    "a value of the wrong type": APP.replace("scopes: [read, write]", "scopes: {{{secret}: 1}}"),
    "a secret in the open": APP.replace("{valueFrom: {env: ACME_SECRET}}", "{{value: {secret}}}"),
    "an unknown field": APP.replace("  provider: acme", "  {secret}: acme"),
    "a foreign scheme": APP.replace("https://acme.example/token", "http://{secret}@acme.example/"),
    "a reference to nowhere": APP + "---\nkind: Tool\napiVersion: agents.example.io/v1alpha1\n"
    "metadata: {{name: t}}\nspec: {{auth: {{oauthAppRef: OAuthApp/{secret}}}}}\n",
}  # fmt: skip


@pytest.mark.case("90", "96")
@pytest.mark.parametrize("problem", YAML)
def test_a_refused_configuration_never_quotes_its_values(problem: str, tmp_path: Path, canaries: Canaries) -> None:
    """Neither pydantic's input, nor YAML's snippet, nor any value of ours."""
    secret = canaries.mint("client secret").reveal()
    text = YAML[problem].replace("{secret}", secret).replace("{{", "{").replace("}}", "}")
    folder = write(tmp_path / "b", app=text)
    canaries.excuse(folder)
    with pytest.raises(ConfigInvalidError) as caught:
        load(folder)
    assert_bare(caught.value, canaries)
    assert [] == canaries.search(json.dumps([it.to_json() for it in caught.value.problems]), "the problems")


@pytest.mark.case("90")
def test_a_value_that_can_not_be_used_is_not_quoted_either(tmp_path: Path, canaries: Canaries) -> None:
    """A secret with a line break in it comes from the environment and stays there."""
    loaded = load(write(tmp_path / "b", app=APP))
    env = {"ACME_SECRET": canaries.mint("client secret").reveal() + "\nx"}
    with pytest.raises(ConfigInvalidError) as caught:
        resolve(loaded, env, {})
    assert_bare(caught.value, canaries)
    assert "spec.client.clientSecret" in str(caught.value)


@pytest.mark.case("90")
@pytest.mark.parametrize("fault", ["no listener", "cut", "too large"])
async def test_a_broken_exchange_carries_no_request_and_no_answer(
    fault: str, identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    """httpx2's exceptions hold the request: its URL, its headers, its body."""
    secret = canaries.mint("client secret")
    url = identity_provider.url("/token") if fault != "no listener" else "http://127.0.0.1:9/token"
    if fault == "cut":
        identity_provider.script.token.close_after_accept(reset=True)
    else:
        identity_provider.script.token.answer(200, secret.reveal() * 100)
    transport = Transport(plain_http_loopback=True)
    request = ProviderRequest("POST", url, headers={"Authorization": secret}, form={"code": secret})
    with pytest.raises(TransportFailed) as caught:
        await transport.send(request, seconds=5, max_bytes=1000)
    await transport.close()
    assert_bare(caught.value, canaries)


@pytest.mark.case("90")
async def test_a_record_that_can_not_be_read_is_refused_without_its_contents(
    harness: Harness, canaries: Canaries
) -> None:
    """Even a traceback that shows the values of locals says nothing: the frames that held the record are gone."""
    await harness.connected()
    key = harness.repository.grant_place(GrantKey("mail", "idp:user:U234567"))
    entry = await harness.store.get(key)
    assert entry is not None
    await harness.store.put(key, entry.body.replace(b'"schema":1', b'"schema":9'), expect=entry.generation)
    with pytest.raises(BrokerError) as caught:
        await harness.broker.revoke("mail", subject="idp:user:U234567")
    assert Code.RECORD_CORRUPT is caught.value.code
    said = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "revoke" in said
    assert [] == canaries.search(said, "a traceback with locals")


# 92: objects that are printed, dumped, copied and taken apart.

OBJECTS: dict[str, Callable[[Harness], Awaitable[Any]]] = {}


def thing(make: Callable[[Harness], Awaitable[Any]]) -> Callable[[Harness], Awaitable[Any]]:
    OBJECTS[make.__name__.replace("_", " ")] = make
    return make


@thing
async def a_grant(harness: Harness) -> Any:
    await harness.connected()
    return await harness.grant()


@thing
async def a_session(harness: Harness) -> Any:
    return await harness.session(await harness.ask_link())


@thing
async def a_claimed_session(harness: Harness) -> Any:
    session = await harness.session(await harness.ask_link())
    return session.claimed("somebody", session.expires_at)


@thing
async def a_pending_session(harness: Harness) -> Any:
    session = await harness.session(await harness.ask_link())
    code, handle = (Canaries.active().mint(kind) for kind in ("authorization code", "handle"))
    return session.with_pending_code(
        PendingCode(kind="runtimeConfirm", code=code, proof=handle, until=session.expires_at)
    )


@thing
async def a_step_to_the_runtime(harness: Harness) -> Any:
    handle = Canaries.active().mint("handle").reveal()
    url = Secret(f"https://runtime.test/confirm?handle={handle}")
    return Step(
        app=harness.broker.bundle.apps["mail"],
        until=harness.clock.now(),
        kind="runtimeConfirm",
        url=url,
        code=Secret(handle),
    )


@thing
async def a_held_record(harness: Harness) -> Any:
    await harness.connected()
    return await harness.repository.grant(GrantKey("mail", "idp:user:U234567"))


@thing
async def a_ready_result(harness: Harness) -> Any:
    return await harness.connected()


@thing
async def a_departure(harness: Harness) -> Any:
    ticket = (await harness.session(await harness.ask_link())).ticket
    assert ticket is not None
    return await harness.parts.pages.service.depart(ticket.reveal())


@thing
async def an_app(harness: Harness) -> Any:
    return harness.broker.bundle.apps["mail"]


@thing
async def the_bundle(harness: Harness) -> Any:
    return harness.broker.bundle


@thing
async def the_broker(harness: Harness) -> Any:
    await harness.connected()
    return harness.broker


@thing
async def a_context(harness: Harness) -> Any:
    return harness.broker.oauth(turn())


async def the_record_of_everything(harness: Harness, canaries: Canaries) -> None:
    for session in [versioned.record async for versioned in harness.repository.sessions()]:
        for kind, secret in _secrets_in(session):
            canaries.add(secret, kind)


def views(thing: Any) -> Iterator[tuple[str, str]]:
    """Everything that prints, and everything that dumps but may refuse."""
    yield "repr", repr(thing)
    yield "str and format", f"{thing} {thing!s} {[thing]}"
    yield "pprint", pprint.pformat(thing)
    yield "vars and slots", repr([repr(getattr(thing, name, None)) for name in _names(thing)])
    dumps: list[tuple[str, Callable[[], str]]] = [
        ("json", lambda: json.dumps(thing, default=repr)),
        ("pickle", lambda: pickle.dumps(thing).decode("latin-1")),
        ("deepcopy", lambda: repr(copy.deepcopy(thing))),
        ("asdict", lambda: repr(dataclasses.asdict(thing))),
    ]
    for way, dump in dumps:
        try:
            yield way, dump()
        except (TypeError, AttributeError, ValueError, RecursionError) as refused:
            yield f"the refusal of {way}", text_of(refused).decode("utf-8", "replace")
    yield "locals of a traceback", _traceback_with(thing)


def _names(thing: Any) -> list[str]:
    found = list(getattr(thing, "__dataclass_fields__", ())) + list(getattr(thing, "__slots__", ()))
    return found + list(getattr(thing, "__dict__", ()))


def _traceback_with(thing: Any) -> str:
    def work() -> None:
        versioned = thing  # shown where locals are printed
        raise ValueError(type(versioned).__name__)

    try:
        work()
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return ""


@pytest.mark.case("92")
@pytest.mark.parametrize("name", OBJECTS)
async def test_no_object_gives_its_secrets_away(name: str, harness: Harness, canaries: Canaries) -> None:
    thing = await OBJECTS[name](harness)
    await the_record_of_everything(harness, canaries)
    for way, text in views(thing):
        assert [] == canaries.search(text, f"{way} of {name}"), way


@pytest.mark.case("92")
async def test_a_link_is_shown_where_it_is_asked_for_and_not_where_it_is_printed(
    harness: Harness, canaries: Canaries
) -> None:
    """`authorization_url` is for the person; a log line of the result has the session's id instead."""
    asked = await harness.ask_link()
    await the_record_of_everything(harness, canaries)
    assert [] == canaries.search(repr(asked) + str(asked) + f"{[asked]}", "the result")
    assert isinstance(asked, AuthorizationRequired)
    assert asked.auth_session_id in repr(asked)


@pytest.mark.case("91", "92")
async def test_events_blocks_results_audit_and_counters_hold_no_secret(harness: Harness, canaries: Canaries) -> None:
    await every_outcome(harness)
    deliveries = [delivery async for delivery in _deliveries(harness)]
    await the_record_of_everything(harness, canaries)
    assert len(deliveries) >= 6
    said = {
        "deliveries": repr(deliveries),
        "events": json.dumps([delivery.to_json() for delivery in deliveries]),
        "audit": "".join(line_of(entry, at) for at, entry in harness.audit.lines) + repr(harness.audit.lines),
        "counters": repr(harness.broker.metrics.counts) + repr(vars(harness.broker.metrics)),
        "log": harness.log.getvalue(),
        "lists": repr([summary async for summary in harness.broker.grants.list()]),
    }
    for where, text in said.items():
        assert text, where
        assert [] == canaries.search(text, where), where


async def _deliveries(harness: Harness) -> AsyncIterator[EventLease]:
    while (delivery := await harness.broker.events.lease("planner")) is not None:
        yield delivery
        await delivery.ack()


@pytest.mark.case("92")
async def test_every_answer_to_a_browser_forbids_to_keep_it_and_to_pass_its_address_on(harness: Harness) -> None:
    """no-store and a referrer policy on every page of ours, and the callback's address is left at once."""
    person = harness.browser()
    await harness.connect(await harness.ask_link(), browser=person)
    ours = [page for page in person.history if page.url.startswith(harness.origin)]
    assert len(ours) >= 4
    for page in ours:
        assert "no-store" in page.header("cache-control")
        assert page.header("referrer-policy") in {"no-referrer", "same-origin"}
    assert "code=" not in person.page.url
    assert "state=" not in person.page.url


@pytest.mark.case("90", "92")
@pytest.mark.parametrize("fault", ["token type", "ID token", "owner", "scope"])
async def test_a_refused_exchange_takes_no_token_along_in_its_traceback(
    fault: str, harness: Harness, canaries: Canaries
) -> None:
    """An error report with the values of locals has no frame that held the provider's answer."""
    asked, person = await harness.ask_link(), harness.browser()
    callback = await harness.way_back(asked, person, "bob" if fault == "owner" else "alice")
    if fault == "token type":
        harness.idp.script.token.alter(lambda answer: {**answer, "token_type": "mac"})
    elif fault == "ID token":
        harness.idp.script.token.alter_id_token(claims={"aud": "somebody-else"})
    elif fault == "scope":
        harness.idp.script.token.alter(lambda answer: {**answer, "scope": "openid read delete"})
    consent, address = harness.parts.pages.service, urlsplit(callback)
    cookies = {cookie.name: cookie.value for cookie in person.cookies.all}

    def cookie_of(locator: str) -> str | None:
        return cookies.get(session_cookie_name(locator, secure=False))

    with pytest.raises(BrokerError) as caught:
        await consent.arrive(consent.apps["mail"], address.query.encode(), cookie_of)
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    on_the_way = ("authorization code", "state", "cookie", "client secret")
    finds = canaries.search("".join(frames), "a traceback with locals", allow=on_the_way)
    assert [] == [find for find in finds if "token" in find.kind], finds
