"""A configuration is reloaded while people connect, tokens are refreshed and tools ask (case 98): as a whole or not at
all, and work under way ends as it began."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from oauthbroker import open_broker
from oauthbroker.config.problems.problems import ConfigInvalidError
from oauthbroker.config.reload import WRITTEN_AS
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.settings import ApiSocket, Branding, Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.observability.logging import json_log
from oauthbroker.testing import Canaries, Client, IdentityProvider
from oauthbroker.testing.browser import Page
from tests.kit.cli import Desk
from tests.kit.running_broker import ALICE, Harness, device_app, running, turn, user_app

pytestmark = pytest.mark.case("98")

HOUR = 3600


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock) -> AsyncIterator[Harness]:
    """Two apps in user mode; upkeep runs when the test says so."""
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
        yield harness


def in_use(harness: Harness, name: str = "mail") -> App:
    return harness.broker.bundle.apps[name]


async def reload(harness: Harness, *, without: str = "", tools: Any = None, **apps: App) -> frozenset[str]:
    """The configuration in use, with these apps new or changed."""
    bundle = harness.broker.bundle
    kept = {name: app for name, app in {**bundle.apps, **apps}.items() if name != without}
    return await harness.broker.reload(replace(bundle, apps=kept, tools=bundle.tools if tools is None else tools))


def with_new_secret(harness: Harness, app: App) -> App:
    """The provider no longer knows the old one."""
    secret = harness.idp.rotate_secret(app.client.client_id, keep=False)
    return replace(app, client=replace(app.client, client_secret=secret))


def registered_anew(harness: Harness, app: App) -> App:
    client = harness.idp.register(Client("client-two", redirect_uris=(app.redirect.uri,)))
    return replace(app, client=replace(app.client, client_id="client-two", client_secret=client.client_secret))


# a person on the way


async def test_a_user_at_the_provider_comes_back_to_the_newest_client_secret(harness: Harness):
    browser, link = harness.browser(), await harness.ask_link()
    callback = await harness.way_back(link, browser)
    assert {"mail"} == await reload(harness, mail=with_new_secret(harness, in_use(harness)))
    page = await browser.follow(callback)
    assert 303 == page.status
    assert isinstance(await harness.ask(), Ready)


@pytest.mark.parametrize("change", ["scopes", "authorization_url", "token_url", "client_id"])
async def test_a_request_for_a_replaced_app_ends_and_its_code_is_never_sent(harness: Harness, change: str):
    browser, link, untouched = harness.browser(), await harness.ask_link(), await harness.ask_link("files")
    callback = await harness.way_back(link, browser)
    app = in_use(harness)
    match change:
        case "scopes":
            app = replace(app, scopes=("read",))
        case "client_id":
            app = registered_anew(harness, app)
        case _:
            app = replace(app, endpoints=replace(app.endpoints, **{change: harness.idp.url(f"/new/{change}")}))
    await reload(harness, mail=app)
    page = await browser.follow(callback)
    assert (400, Code.STATE_EXPIRED.value) == (page.status, code_of(harness))
    assert 0 == harness.idp.count("authorization_code")
    assert "expired" == (await harness.broker.wait(link.auth_session_id, timeout=0)).status
    assert "pending" == (await harness.broker.wait(untouched.auth_session_id, timeout=0)).status
    assert (await harness.browser().open(link.authorization_url)).status >= 400
    assert link.auth_session_id != (await harness.ask_link()).auth_session_id
    assert None is await harness.grant()


def code_of(harness: Harness) -> str:
    """What the log says of the last request that was refused."""
    lines = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    return str([line["code"] for line in lines if line["event"] == "request" and "code" in line][-1])


async def test_an_exchange_under_way_finishes_with_the_app_it_began_with(harness: Harness):
    browser, link, app = harness.browser(), await harness.ask_link(), in_use(harness)
    callback = await harness.way_back(link, browser)
    hold = harness.idp.script.token.hang()
    coming = asyncio.create_task(browser.follow(callback))
    await hold.arrived()
    await reload(harness, without="mail")
    hold.release()
    page: Page = await coming
    assert 303 == page.status
    assert "completed" == (await harness.broker.wait(link.auth_session_id, timeout=0)).status
    grant = await harness.grant()
    assert grant is not None
    assert app.registration == grant.registration
    await reload(harness, mail=app)
    assert isinstance(await harness.ask(), Ready)


async def test_a_device_that_waits_for_a_code_of_before_is_told_so(harness: Harness):
    app = device_app(harness.idp)
    assert {"tv"} == await reload(harness, tv=app)
    link = await harness.ask_link("tv")
    assert link.device_code is not None
    await reload(harness, tv=replace(app, scopes=("read",)))
    harness.idp.device_approve(link.device_code.user_code)
    assert "expired" == (await harness.broker.wait(link.auth_session_id, timeout=0)).status
    assert None is await harness.grant("tv")
    assert 0 == len(harness.idp.device(link.device_code.user_code).polls)


# a refresh under way


@pytest.mark.parametrize("after_work", [False, True], ids=["before the provider refreshed", "after it"])
async def test_a_refresh_under_way_finishes_with_the_app_it_began_with(harness: Harness, after_work: bool):
    await harness.connected()
    harness.clock.advance(HOUR)
    app, hold = in_use(harness), harness.idp.script.refresh.hang(after_work=after_work)
    asking = asyncio.create_task(harness.ask())
    await hold.arrived()
    elsewhere = replace(app, endpoints=replace(app.endpoints, token_url=harness.idp.url("/elsewhere")))
    await reload(harness, mail=elsewhere)
    hold.release()
    refreshed = await asking
    assert isinstance(refreshed, Ready)
    assert harness.idp.is_alive(refreshed.access_token)
    later = await harness.ask_link()
    assert "noGrant" == later.reason  # it was made at another provider
    await reload(harness, mail=app)
    again = await harness.ask()
    assert isinstance(again, Ready)
    assert (refreshed.access_token, 1) == (again.access_token, harness.idp.count("refresh_token"))


async def test_an_app_that_was_fixed_is_asked_for_at_once(harness: Harness):
    """However long its provider was to be left in peace for refusing our old secret."""
    await harness.connected()
    harness.clock.advance(HOUR)
    fixed = with_new_secret(harness, in_use(harness))
    refused = await harness.ask()
    assert isinstance(refused, Failed)
    assert Code.APP_MISCONFIGURED is refused.code
    await reload(harness, mail=fixed)
    assert isinstance(await harness.ask(), Ready)


# apps that come and go


async def test_another_client_id_needs_a_new_grant_and_the_old_one_is_left_alone(harness: Harness):
    first = await harness.connected()
    before = await harness.grant()
    await reload(harness, mail=registered_anew(harness, in_use(harness)))
    link = await harness.ask_link()
    assert ("noGrant", before) == (link.reason, await harness.grant())
    assert 0 == harness.idp.count("revoke")
    assert 200 == (await harness.connect(link)).status
    second = await harness.ask()
    assert isinstance(second, Ready)
    assert first.access_token != second.access_token


async def test_an_app_that_was_removed_is_unknown_and_one_that_comes_back_has_its_grants(harness: Harness):
    first = await harness.connected()
    waiting = await harness.ask_link("files")
    path = in_use(harness, "files").redirect.callback_path
    removed = in_use(harness), in_use(harness, "files")
    for name in ("mail", "files"):
        assert {name} == await reload(harness, without=name)
        reported = await harness.ask(name)
        assert isinstance(reported, Failed)
        assert Code.OAUTH_APP_NOT_FOUND is reported.code
    assert (None, 404) == (
        await harness.broker.pending(turn()),
        (await harness.browser().open(f"{harness.origin}{path}")).status,
    )
    assert "expired" == (await harness.broker.wait(waiting.auth_session_id, timeout=0)).status
    await reload(harness, mail=removed[0], files=removed[1])
    again = await harness.ask()
    assert isinstance(again, Ready)
    assert first.access_token == again.access_token


async def test_an_app_that_was_added_is_connected_at_its_own_callback(harness: Harness):
    added = user_app(harness.idp, "calendar")
    path = f"{harness.origin}{added.redirect.callback_path}"
    assert 404 == (await harness.browser().open(path)).status
    assert {"calendar"} == await reload(harness, calendar=added)
    assert 400 == (await harness.browser().open(path)).status
    assert isinstance(await harness.connected("calendar"), Ready)


async def test_an_app_that_came_to_share_a_client_is_not_ended_with_the_other_one(harness: Harness):
    """What one revocation takes with it is checked by the apps of now."""
    await harness.connected()
    twin = replace(
        in_use(harness), name="twin", redirect=replace(in_use(harness).redirect, callback_path="/oauth/callback/twin")
    )
    harness.idp.change(
        "client-mail", revoke_reach="grant", redirect_uris=(in_use(harness).redirect.uri, twin.redirect.uri)
    )
    reaching = Revocation(reach="grant")
    await reload(harness, mail=replace(in_use(harness), revocation=reaching), twin=replace(twin, revocation=reaching))
    kept = await harness.connected("twin")
    assert "shared" == await harness.broker.grants.revoke("mail", ALICE)
    assert harness.idp.is_alive(kept.access_token)


async def test_a_turn_may_list_its_requests_while_apps_come_and_go(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    links = {(await harness.ask_link(name)).auth_session_id for name in ("mail", "files")}
    real, added = harness.parts.pending.repository.waiting, user_app(harness.idp, "calendar")

    async def waiting(app: str, subject: str) -> Any:
        await reload(harness, calendar=added)
        return await real(app, subject)

    monkeypatch.setattr(harness.parts.pending.repository, "waiting", waiting)
    block = await harness.broker.pending(turn())
    assert block is not None
    assert links == {item["authSessionId"] for item in block["items"]}


async def test_tools_are_narrowed_from_the_next_turn_on(harness: Harness):
    async def asked(tool: str) -> str:
        result = await harness.broker.oauth(turn(), tool=tool).get_access_token("mail")
        return result.code.value if isinstance(result, Failed) else result.status

    assert "appForbidden" == await asked("Tool/post")
    await reload(harness, tools={"Tool/post": (ToolAuth("mail", ("read",)),)})
    assert "authorization_required" == await asked("Tool/post")
    await reload(harness, tools={})
    assert "appForbidden" == await asked("Tool/post")


# refusals


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return ApiSocket("/elsewhere.sock")
        case str():
            return f"{value}x"
        case Branding():
            return Branding("x")
    return type(value)(["x"])


def changes_of(settings: Settings) -> list[tuple[str, Settings]]:
    """(the field, settings that differ in it alone), for each field of Settings and of Limits."""
    limits = settings.limits
    simple = [each.name for each in fields(Settings) if each.compare and each.name != "limits"]
    return [
        *[(name, replace(settings, **{name: another(getattr(settings, name))})) for name in simple],
        *[
            ("limits", replace(settings, limits=replace(limits, **{each.name: another(getattr(limits, each.name))})))
            for each in fields(Limits)
        ],
    ]


def is_written(path: str) -> bool:
    """Whether a Broker resource can say it."""
    model: Any = BrokerSpec
    for name in path.removeprefix("spec.").split("."):
        found = [each for each in model.model_fields.values() if each.alias == name] if model else []
        if not found:
            return False
        model = next((kind for kind in get_args(found[0].annotation) if hasattr(kind, "model_fields")), None)
    return True


async def test_a_changed_setting_is_named_as_it_is_written(harness: Harness):
    before = harness.broker.bundle
    for field, settings in changes_of(before.settings):
        with pytest.raises(ConfigInvalidError) as refused:
            await harness.broker.reload(replace(before, settings=settings))
        assert [WRITTEN_AS[field]] == [problem.path for problem in refused.value.problems]
    assert [] == [path for path in WRITTEN_AS.values() if not is_written(path)]


async def test_settings_that_take_a_restart_are_named_and_nothing_changes(harness: Harness):
    before, app = harness.broker.bundle, replace(in_use(harness), scopes=("read",))
    settings = replace(
        before.settings, public_base_url="http://127.0.0.1:1", locale="ko", limits=Limits(queue_attempts=9)
    )
    with pytest.raises(ConfigInvalidError) as refused:
        await harness.broker.reload(Bundle(settings, {"mail": app}))
    assert ["spec.limits", "spec.locale", "spec.publicBaseUrl"] == sorted(p.path for p in refused.value.problems)
    assert {"restart it, or take the change back"} == {p.hint for p in refused.value.problems}
    assert before is harness.broker.bundle
    assert ("red", (Code.CONFIG_INVALID.value,)) == (harness.broker.health().status, harness.broker.health().problems)
    page = await harness.browser().open(f"{harness.origin}/healthz")
    assert (200, '{"status":"red","problems":["configInvalid"]}') == (page.status, page.text)
    (line,) = [json.loads(it) for it in harness.log.getvalue().splitlines() if "the new configuration" in it]
    told = [
        f"{path}: Cannot change while the broker runs. Restart it, or take the change back."
        for path in ("spec.limits", "spec.locale", "spec.publicBaseUrl")
    ]
    assert (3, told) == (line["problems"], sorted(line["details"]))
    assert isinstance(await harness.connected(), Ready)
    assert frozenset() == await harness.broker.reload()
    assert "ok" == harness.broker.health().status


async def test_of_two_reloads_at_once_the_later_one_is_in_use(harness: Harness):
    one, two = (replace(in_use(harness), title=title) for title in ("One", "Two"))
    await asyncio.gather(reload(harness, mail=one), reload(harness, mail=two))
    assert "Two" == in_use(harness).title


async def test_a_store_that_fails_meanwhile_leaves_the_sessions_to_their_digest(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The configuration is in use all the same; a browser that comes back with one of before is refused."""
    browser, link = harness.browser(), await harness.ask_link()
    callback = await harness.way_back(link, browser)

    async def fails(*_: Any, **__: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(type(harness.store), "put", fails)
        await reload(harness, mail=replace(in_use(harness), scopes=("read",)))
    assert ("read",) == in_use(harness).scopes
    assert "authorizations of before are still open" in harness.log.getvalue()
    assert (400, 0) == ((await browser.follow(callback)).status, harness.idp.count("authorization_code"))
    await harness.running._tend()
    assert "expired" == (await harness.broker.wait(link.auth_session_id, timeout=0)).status


@pytest.mark.parametrize("lasting", [False, True], ids=["away", "refused"])
async def test_a_reload_that_finds_the_store_away_is_no_unstored_token_and_ends_with_the_next_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, lasting: bool
):
    """Red with `storeUnavailable` would say that a refreshed token is in memory only."""
    reloading, reads = harness.broker._reload, harness.broker._reload.read

    async def fails(_: Any) -> Bundle:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="database: away", lasting=lasting)

    monkeypatch.setattr(reloading, "read", fails)
    for _ in range(3):
        with pytest.raises(BrokerError) as refused:
            await harness.broker.reload()
        assert Code.STORE_UNAVAILABLE is refused.value.code
        assert (Code.CONFIG_INVALID.value,) == harness.broker.health().problems
    (line,) = [json.loads(it) for it in harness.log.getvalue().splitlines() if "the new configuration" in it]
    assert ("warning", "storeUnavailable", "database: away") == (line["level"], line["code"], line["note"])
    monkeypatch.setattr(reloading, "read", reads)
    await reload(harness)
    assert "ok" == harness.broker.health().status


# files


@pytest.fixture
def files(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:
    return Desk(tmp_path, canaries, monkeypatch, capsys)


def logged(capsys: Any) -> str:
    return str(capsys.readouterr().err)


def test_a_broken_file_keeps_the_old_configuration_and_its_fix_is_taken(
    files: Desk, identity_provider: IdentityProvider, canaries: Canaries, capsys: Any
):
    files.ready_to_serve(identity_provider)
    good = (files.folder / "config" / "mail.yaml").read_text("utf-8")
    value = canaries.mint("a value").reveal()
    broken = [
        good.replace("scopes: [read, write]", f"scopes: {value}"),
        good.replace("subjectMode: user", f"subjectMode: user\n  {value[:12]}x: {value}"),
        good + "]: [",
        good.replace("Secret/mail", "Secret/nobody"),
    ]

    async def story() -> None:
        log = json_log(sys.stderr, SystemClock())
        async with open_broker("config", env={}, log=log, background=False) as broker:
            for text in broken:
                files.write("mail", text)
                with pytest.raises(ConfigInvalidError) as refused:
                    await broker.reload()
                canaries.look(refused.value, "the refusal")
                assert "red" == broker.health().status
                assert ("read", "write") == broker.bundle.apps["mail"].scopes
                said = logged(capsys)
                assert f'"problems": {len(refused.value.problems)}' in said
                canaries.look(said, "the log")
                assert isinstance(await broker.oauth(turn()).get_access_token("mail"), AuthorizationRequired)
            files.write("mail", good.replace("[read, write]", "[read]"))
            assert {"mail"} == await broker.reload()
            assert ("ok", ("read",)) == (broker.health().status, broker.bundle.apps["mail"].scopes)

    asyncio.run(story())


def test_a_secret_that_was_set_meanwhile_is_taken(files: Desk, identity_provider: IdentityProvider, canaries: Canaries):
    files.ready_to_serve(identity_provider)
    secret = canaries.mint("client secret").reveal()

    async def story() -> None:
        async with open_broker("config", env={}, background=False) as broker:
            await broker.secrets.put("mail", "client_secret", Secret(secret))
            assert {"mail"} == await broker.reload()
            assert Secret(secret) == broker.bundle.apps["mail"].client.client_secret
            assert frozenset() == await broker.reload()

    asyncio.run(story())
