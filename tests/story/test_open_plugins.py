"""Plug-ins of a running broker: opened, closed, told of a reload, worked for, asked for findings, and audited.
The broker serves and ends, although its plug-ins do wrong."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import Ready, open_broker
from oauthbroker.audit.formatting import line_of
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.plugin_resources import PluginResource, PluginResources
from oauthbroker.model.settings import Settings
from oauthbroker.repository.repository import KINDS
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.wiring import plugin_lifecycle as wiring
from tests.kit.plugin_package import install
from tests.kit.running_broker import BASE, Harness, running, user_app
from tests.kit.waiting import until
from tests.story.mcp_apps_kit import app_at

QUIET = """
@asynccontextmanager
async def open_plugin(broker, resources):
    heard.append(("open", sorted(each.name for each in resources.resources)))
    try:
        yield RunningPlugin(**more(broker))
    finally:
        heard.append(("close",))


def more(broker):
    return {}
"""
CANARY = "s3cret of a plug-in"
STUBBORN = """for _ in range(8):
            try:
                await asyncio.sleep(0.25)
            except asyncio.CancelledError:
                heard.append("ignored")"""
"""It ignores that it is cancelled, and ends after two seconds: the loop of the test waits for it."""


class Plugins:
    """The plug-ins of one test."""

    def __init__(self, folder: Path, idp: IdentityProvider, clock: TestClock) -> None:
        self.folder, self.idp, self.clock = folder, idp, clock
        self.resources: dict[str, PluginResources] = {}
        self.modules: dict[str, str] = {}

    def add(self, name: str, code: str = "", declared: str = "open=here('open_plugin')") -> None:
        self.modules[name] = install(self.folder, name, QUIET + code, declared)
        self.resources[name] = PluginResources((PluginResource("Bed", f"{name}-bed", None),))

    def running(self, **more: Any) -> AbstractAsyncContextManager[Harness]:
        return running(self.idp, [user_app(self.idp)], clock=self.clock, plugins=self.resources, **more)

    def module(self, name: str) -> Any:
        return import_module(self.modules[name])

    def heard(self, name: str) -> list[Any]:
        return list(self.module(name).heard)


@pytest.fixture
def plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity_provider: IdentityProvider, test_clock: TestClock
) -> Plugins:
    monkeypatch.syspath_prepend(tmp_path)
    return Plugins(tmp_path, identity_provider, test_clock)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker waits for no plug-in for long."""
    for name in ("OPEN_SECONDS", "RELOAD_SECONDS", "CLOSE_SECONDS", "CANCEL_SECONDS"):
        monkeypatch.setattr(wiring, name, 0.05)


def logged(harness: Harness, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == event]


async def serves(harness: Harness) -> bool:
    """A user connects and gets a token."""
    await harness.connect(await harness.ask_link())
    return isinstance(await harness.ask(), Ready)


# opening and closing


async def test_plugins_are_opened_in_their_order_and_closed_in_reverse(plugins: Plugins) -> None:
    order: list[str] = []
    for name in ("garden", "orchard"):
        plugins.add(name)
        plugins.module(name).heard = type("Heard", (list,), {"append": lambda _, word, name=name: order.append(f"{word[0]} {name}")})()  # fmt: skip
    async with plugins.running():
        assert ["open garden", "open orchard"] == order
    assert ["close orchard", "close garden"] == order[2:]


async def test_a_plugin_gets_the_broker_and_its_own_resources(plugins: Plugins) -> None:
    plugins.add("garden", "def more(broker):\n    heard.append(broker)\n    return {}")
    plugins.add("orchard")
    async with plugins.running() as harness:
        assert [("open", ["garden-bed"]), harness.broker] == plugins.heard("garden")
        assert [("open", ["orchard-bed"])] == plugins.heard("orchard")


async def test_embedded_a_broker_opens_its_plugins_and_a_short_command_opens_none(plugins: Plugins) -> None:
    plugins.add("garden")
    settings = Settings(public_base_url=BASE, plugins=("garden",))
    bundle = Bundle(settings, {}, plugins=plugins.resources)
    for more, expected in (({"background": False}, 0), ({"only": ()}, 0), ({}, 1)):
        store = MemoryStore(kinds=KINDS, clock=plugins.clock)
        async with open_broker(bundle, env={}, clock=plugins.clock, store=store, **more):
            assert expected == len(plugins.heard("garden"))
    assert [("open", ["garden-bed"]), ("close",)] == plugins.heard("garden")


async def test_a_plugin_without_a_running_half_opens_nothing(plugins: Plugins) -> None:
    plugins.add("garden", declared="")
    async with plugins.running() as harness:
        assert "ok" == harness.broker.health().status


FAILING = {
    "raises": ("raise ValueError('s3cret of a plug-in')", Code.CONFIG_INVALID, "ValueError at "),
    "raises one of ours": ("raise BrokerError(Code.STORE_UNAVAILABLE)", Code.STORE_UNAVAILABLE, "storeUnavailable"),
    "raises one of ours with a note": (
        "raise BrokerError(Code.CONFIG_INVALID, note='dig first')", Code.CONFIG_INVALID, "dig first",
    ),
    "ends the process": ("raise SystemExit(7)", Code.CONFIG_INVALID, "SystemExit at "),
    "is cancelled": ("raise asyncio.CancelledError", Code.CONFIG_INVALID, "cancelled"),
    "does not end": ("await asyncio.sleep(3600)", Code.CONFIG_INVALID, "not within"),
    "ignores its end": (STUBBORN, Code.CONFIG_INVALID, "not within"),
    "yields something else": ("yield 17", Code.CONFIG_INVALID, "it yields no RunningPlugin, but an object of the type int"),
    **{
        f"has a wrong {what}": (f"yield RunningPlugin({given})", Code.CONFIG_INVALID, why)
        for what, given, why in (
            ("list of routes", "routes=None", "`routes` is a list"),
            ("route", "routes=[object()]", "`routes` is a list"),
            ("path", "routes=[PluginRoute(method='GET', path=None, handler=print, who=())]", "the path and method of"),
            ("method", "routes=[PluginRoute(method=[], path='/v1/garden', handler=print, who=())]", "the path and method of"),
            ("who", "routes=[PluginRoute(method='GET', path='/v1/garden', handler=print, who='')]", "`who` is a list"),
            ("caller", "routes=[PluginRoute(method='GET', path='/v1/garden', handler=print, who=[[]])]", "`who` is a list"),
            ("handler", "routes=[PluginRoute(method='GET', path='/v1/garden', handler=None, who=())]", "GET /v1/garden is no"),
            ("list of work", "background=None", "`background` is a list"),
            ("item of work", "background=[print]", "`background` is a list"),
            ("work", "background=[Background(name='dig', seconds=1, work=None)]", "background work has"),
            ("name of work", "background=[Background(name=1, seconds=1, work=print)]", "background work has"),
            ("findings", "findings=[]", "`findings` and `on_reload`"),
            ("on_reload", "on_reload=17", "`findings` and `on_reload`"),
        )
    },
    "has a bad route": (
        "yield RunningPlugin(routes=[PluginRoute(method='GET', path='/v1/tokens', handler=print, who=())])",
        Code.CONFIG_INVALID, "GET /v1/tokens",
    ),
    "has bad background work": (
        "yield RunningPlugin(background=[Background(name='dig', seconds=0, work=None)])", Code.CONFIG_INVALID, "ValueError",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("code", "expected", "why"), FAILING.values(), ids=FAILING)
async def test_a_plugin_that_does_not_open_stops_the_start_with_its_name_and_no_secret(
    plugins: Plugins, code: str, expected: Code, why: str
) -> None:
    plugins.add("orchard")
    opening = f"@asynccontextmanager\nasync def open_plugin(broker, resources):\n    if True:\n        {code}\n    yield RunningPlugin()\n"
    plugins.add("garden", opening)
    with pytest.raises(BrokerError) as refused:
        async with plugins.running():
            pytest.fail("it was opened")
    assert expected is refused.value.code
    assert "the plug-in garden" in str(refused.value)
    assert why in str(refused.value)
    assert "oauthbroker check" not in str(refused.value), "it looks at none of this"
    assert CANARY not in str(refused.value)
    assert refused.value.__context__ is None
    assert ("close",) == plugins.heard("orchard")[-1]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "stay",
    [
        "await asyncio.sleep(3600)",
        "raise ValueError('s3cret of a plug-in')",
        "raise SystemExit(1)",
        "raise asyncio.CancelledError",
        STUBBORN,
    ],
    ids=["hangs", "raises", "ends the process", "is cancelled", "ignores its end"],
)  # fmt: skip
async def test_a_plugin_that_does_not_close_holds_up_neither_the_broker_nor_another_plugin(
    plugins: Plugins, stay: str
) -> None:
    plugins.add("orchard")
    closing = f"@asynccontextmanager\nasync def open_plugin(broker, resources):\n    try:\n        yield RunningPlugin()\n    finally:\n        heard.append(1)\n        {stay}\n"
    plugins.add("garden", closing)
    async with plugins.running() as harness:
        assert await serves(harness)
    assert 1 in plugins.heard("garden")
    assert ("close",) == plugins.heard("orchard")[-1]
    assert CANARY not in harness.log.getvalue()


async def test_a_plugin_enters_and_leaves_its_block_in_one_task(plugins: Plugins) -> None:
    """Task groups and cancel scopes demand it."""
    plugins.add(
        "garden",
        "@asynccontextmanager\nasync def open_plugin(broker, resources):\n    async with asyncio.TaskGroup() as group:\n"
        "        heard.append(asyncio.current_task())\n        yield RunningPlugin()\n"
        "        heard.append(asyncio.current_task())\n",
    )
    async with plugins.running():
        pass
    entered, left = plugins.heard("garden")
    assert entered is left


async def test_a_plugin_that_ends_by_itself_is_a_finding_and_the_broker_serves(plugins: Plugins) -> None:
    plugins.add(
        "garden",
        "async def crash():\n    await go.wait()\n    raise ValueError('s3cret of a plug-in')\n\n\ngo = asyncio.Event()\n\n\n"
        "@asynccontextmanager\nasync def open_plugin(broker, resources):\n    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(crash())\n        yield RunningPlugin()\n",
    )
    async with plugins.running() as harness:
        assert "ok" == harness.broker.health().status
        plugins.module("garden").go.set()
        await until(lambda: harness.broker.health().problems)
        assert ("garden.ended",) == harness.broker.health().problems
        assert await serves(harness)
        assert CANARY not in harness.log.getvalue()
        (line,) = logged(harness, "a plug-in has ended")
        assert "garden" == line["plugin"]


# background work


async def test_background_work_is_done_at_the_start_and_again_and_ends_before_its_plugin(plugins: Plugins) -> None:
    plugins.add(
        "garden",
        "def more(broker):\n    async def work():\n        heard.append(('round',))\n"
        "    return {'background': [Background(name='dig', seconds=0.01, work=work)]}",
    )
    async with plugins.running():
        await until(lambda: len(plugins.heard("garden")) > 3)
    heard = plugins.heard("garden")
    assert [("open", ["garden-bed"]), ("round",), ("round",)] == heard[:3]
    assert ("close",) == heard[-1]
    await asyncio.sleep(0.05)
    assert heard == plugins.heard("garden")


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ("raise ValueError('s3cret of a plug-in')", "ValueError"),
        ("raise BrokerError(Code.STORE_UNAVAILABLE, note='s3cret of a plug-in')", "storeUnavailable"),
        ("raise SystemExit(1)", "SystemExit"),
        ("raise asyncio.CancelledError", "CancelledError"),
    ],
)
async def test_a_round_that_fails_is_logged_by_its_type_and_the_next_one_comes(
    plugins: Plugins, fault: str, reported: str
) -> None:
    plugins.add(
        "garden",
        f"def more(broker):\n    async def work():\n        heard.append(1)\n        {fault}\n"
        "    async def other():\n        heard.append(2)\n"
        "    return {'background': [Background(name='dig', seconds=0.01, work=work), "
        "Background(name='water', seconds=0.01, work=other), "
        "Background(name='rake', seconds=0.01, work=lambda: 17)]}",
    )
    async with plugins.running() as harness:
        await until(lambda: plugins.heard("garden").count(1) > 2)
        await until(lambda: plugins.heard("garden").count(2) > 2)
        assert await serves(harness)
    lines = logged(harness, "background work of a plug-in failed")
    assert {("garden", "dig", reported), ("garden", "rake", "TypeError")} == {
        (line["plugin"], line["task"], line["error"].partition(" at ")[0]) for line in lines
    }
    assert CANARY not in harness.log.getvalue()


async def test_a_slow_round_holds_up_neither_other_work_nor_the_end(plugins: Plugins) -> None:
    plugins.add(
        "garden",
        "def more(broker):\n    async def work():\n        try:\n            await asyncio.sleep(3600)\n"
        "        finally:\n            heard.append('ended')\n    async def other():\n        heard.append(2)\n"
        "    return {'background': [Background(name='dig', seconds=1, work=work), "
        "Background(name='water', seconds=0.01, work=other)]}",
    )
    async with plugins.running():
        await until(lambda: plugins.heard("garden").count(2) > 2)
    assert "ended" in plugins.heard("garden")


@pytest.mark.usefixtures("hurried")
async def test_a_round_that_ignores_its_end_does_not_hold_up_the_broker(plugins: Plugins) -> None:
    plugins.add(
        "garden",
        f"def more(broker):\n    async def work():\n        heard.append(1)\n        {STUBBORN}\n"
        "    return {'background': [Background(name='dig', seconds=1, work=work)]}",
    )
    async with plugins.running() as harness:
        await until(lambda: 1 in plugins.heard("garden"))
    (line,) = logged(harness, "background work of a plug-in does not end")
    assert ("garden", "dig") == (line["plugin"], line["task"])
    assert ("close",) == plugins.heard("garden")[-1]


@pytest.mark.usefixtures("hurried")
async def test_many_that_ignore_their_end_are_waited_for_as_long_as_one(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    async def counted(tasks: Any, **more: Any) -> Any:
        waits.append(len(tasks))
        return await asyncio.wait(tasks, **more)

    bound = """while 'free' not in heard:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass"""
    names = ("garden", "orchard", "meadow")
    for name in names:
        plugins.add(
            name,
            f"async def work():\n        heard.append(1)\n        {bound}\n\n\n"
            "@asynccontextmanager\nasync def open_plugin(broker, resources):\n"
            "    yield RunningPlugin(background=[Background(name='dig', seconds=1, work=work)])\n"
            f"    if True:\n        {bound}\n",
        )
    async with plugins.running() as harness:
        await until(lambda: all(1 in plugins.heard(name) for name in names))
        monkeypatch.setattr(wiring, "asyncio", SimpleNamespace(**{**vars(asyncio), "wait": counted}))
        try:
            await harness.parts.plugins.close()
        finally:
            for name in names:
                plugins.module(name).heard.append("free")
        assert [3, 3, 1, 1, 1, 3, 3] == waits  # works, cancelled works, each plug-in, all, and those cancelled
        assert 3 == len(logged(harness, "background work of a plug-in does not end"))
        assert set(names) == {line["plugin"] for line in logged(harness, "a plug-in does not close")}


async def test_a_round_waits_for_a_lock_of_the_store_as_other_background_work_does(plugins: Plugins) -> None:
    plugins.add(
        "garden",
        "from oauthbroker.core.lifecycle import seconds_to_wait\n\n\n"
        "def more(broker):\n    async def work():\n        heard.append(seconds_to_wait('a lock', 60.0))\n"
        "    return {'background': [Background(name='dig', seconds=1, work=work)]}",
    )
    async with plugins.running():
        await until(lambda: 0.5 in plugins.heard("garden"))


# findings

FINDS = (
    "found = []\n\n\ndef finds():\n    for each in found:\n        if isinstance(each, BaseException):\n            raise each\n"
    "    return found\n\n\ndef more(broker):\n    return {'findings': finds}\n"
)


async def test_a_finding_makes_health_red_until_it_is_gone(plugins: Plugins) -> None:
    plugins.add("garden", FINDS)
    async with plugins.running() as harness:
        module = plugins.module("garden")
        module.found.append(module.PluginFinding(code="dry", text="No rain.", hint="Water it."))
        health = harness.broker.health()
        assert ("red", ("garden.dry",)) == (health.status, health.problems)
        said = json.loads((await Browser(apps={BASE: harness.broker.asgi.app}).open(f"{BASE}/healthz")).text)
        assert {
            "status": "red",
            "problems": ["garden.dry"],
            "findings": [{"code": "garden.dry", "text": "No rain.", "hint": "Water it."}],
        } == said
        assert "garden.dry" in repr(harness.parts.gauges.of_process())
        assert await serves(harness)
        module.found.clear()
        assert {"status": "ok"} == harness.broker.health().to_json()


@pytest.mark.parametrize(
    "found", ["ValueError('s3cret of a plug-in')", "SystemExit(3)", "17", "None", "wrong(['a'])", "wrong('\\ud800')"]
)
async def test_findings_that_fail_are_a_finding_themselves(plugins: Plugins, found: str) -> None:
    wrong = "def wrong(text):\n    made = PluginFinding(code='dry', text='', hint='')\n    object.__setattr__(made, 'text', text)\n    return made"
    plugins.add("garden", f"{FINDS}\n\n{wrong}\n\n\nfound.append({found})\n")
    plugins.add("orchard", f"{FINDS}\nfound.append(PluginFinding(code='dry', text='No rain.', hint='Water it.'))\n")
    async with plugins.running() as harness:
        assert ("garden.findingsFailed", "orchard.dry") == harness.broker.health().problems
        assert CANARY not in repr(harness.broker.health())
        said = json.loads((await Browser(apps={BASE: harness.broker.asgi.app}).open(f"{BASE}/healthz")).text)
        assert ["garden.findingsFailed", "orchard.dry"] == said["problems"]
        (line,) = logged(harness, "the findings of a plug-in fail")
        assert "garden" == line["plugin"]
        assert line["error"]
        assert CANARY not in harness.log.getvalue()


async def test_findings_are_bounded_and_hold_no_token_that_was_handed_out(plugins: Plugins) -> None:
    plugins.add("garden", FINDS)
    async with plugins.running() as harness:
        assert await serves(harness)
        token = (await harness.ask()).access_token.reveal()
        finding = plugins.module("garden").PluginFinding
        plugins.module("garden").found.extend(finding(code=f"n{n}", text=f"No {token}.", hint=token) for n in range(99))
        health = harness.broker.health()
        assert wiring.MOST_FINDINGS == len(health.problems)
        assert token not in repr(health)


@pytest.mark.parametrize("more", [{"code": "two words"}, {"code": ""}, {"code": "Dry"}, {"code": "a.b"}, {"text": "x" * 301}, {"hint": "x" * 301}, {"text": ["No rain."]}, {"hint": None}, {"text": "\ud800"}, {"hint": "\udfff"}])  # fmt: skip
def test_a_finding_is_a_word_and_two_short_sentences(more: dict[str, Any]) -> None:
    from oauthbroker.plugins import PluginFinding

    with pytest.raises(ValueError, match="finding"):
        PluginFinding(**{"code": "dry", "text": "No rain.", "hint": "Water it.", **more})


# reload

FOLLOWS = (
    "async def follow(resources):\n    heard.append(sorted(each.name for each in resources.resources))\n"
    "    await act()\n\n\nasync def act():\n    pass\n\n\ndef more(broker):\n    return {'on_reload': follow}\n"
)


async def test_a_plugin_gets_its_resources_of_a_new_configuration(plugins: Plugins) -> None:
    plugins.add("garden", FOLLOWS)
    plugins.add("orchard")
    async with plugins.running() as harness:
        resources = {"garden": PluginResources((PluginResource("Bed", "new", None),))}
        await harness.broker.reload(replace(harness.broker.bundle, plugins=resources))
        assert ["new"] == plugins.heard("garden")[-1]
        assert [("open", ["orchard-bed"])] == plugins.heard("orchard")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("act", "reported"),
    [
        ("raise ValueError('s3cret of a plug-in')", "ValueError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("await asyncio.sleep(3600)", "TimeoutError"),
        ("raise asyncio.CancelledError", "CancelledError"),
        ("try:\n        await asyncio.sleep(3600)\n    except asyncio.CancelledError:\n        await asyncio.sleep(3600)", "TimeoutError"),
    ],
    ids=["raises", "ends the process", "hangs", "is cancelled", "ignores its end"],
)  # fmt: skip
async def test_a_plugin_that_does_not_take_a_configuration_is_a_finding_until_it_takes_one(
    plugins: Plugins, act: str, reported: str
) -> None:
    plugins.add("garden", FOLLOWS + f"\n\nasync def act():\n    {act}\n")
    plugins.add("orchard", FOLLOWS)
    async with plugins.running() as harness:
        await harness.broker.reload(harness.broker.bundle)
        assert ("garden.reloadFailed",) == harness.broker.health().problems
        assert ["orchard-bed"] == plugins.heard("orchard")[-1]
        (line,) = logged(harness, "a plug-in has not taken the new configuration")
        assert ("garden", reported) == (line["plugin"], line["error"].partition(" at ")[0])
        assert CANARY not in harness.log.getvalue()

        async def nothing() -> None: ...

        plugins.module("garden").act = nothing
        await harness.broker.reload(harness.broker.bundle)
        assert "ok" == harness.broker.health().status


async def test_a_plugin_gets_a_new_configuration_also_while_the_clients_of_mcp_servers_cannot_be_read(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next reload may be days away: until then it would work by the rules of before, and no finding would say so."""
    plugins.add("garden", FOLLOWS)
    async with plugins.running() as harness:
        bundle, clients = harness.broker.bundle, harness.running.parts.repository.clients

        async def fails(*_: Any) -> None:
            raise BrokerError(Code.STORE_UNAVAILABLE)

        monkeypatch.setattr(type(clients), "get", fails)
        apps = {**bundle.apps, "tickets": app_at("http://127.0.0.1:9/mcp")}
        resources = {"garden": PluginResources((PluginResource("Bed", "new", None),))}
        await harness.broker.reload(replace(bundle, apps=apps, plugins=resources))
        assert ["new"] == plugins.heard("garden")[-1]


async def test_a_refused_configuration_reaches_no_plugin(plugins: Plugins) -> None:
    plugins.add("garden", FOLLOWS)
    async with plugins.running() as harness:
        bundle = harness.broker.bundle
        with pytest.raises(BrokerError):
            await harness.broker.reload(replace(bundle, settings=replace(bundle.settings, plugins=())))
        assert [("open", ["garden-bed"])] == plugins.heard("garden")


# audit

WRITES = """
class Dug(PluginAuditEntry, plugin="garden"):
    tool: str
    depth: int


class Filled(PluginAuditEntry, plugin="garden"):
    tool: str


TYPES = (Dug,)
"""
DECLARED = "open=here('open_plugin'), audit_types=here('TYPES')"


async def test_a_plugin_writes_its_entries_and_no_others(plugins: Plugins) -> None:
    plugins.add("garden", WRITES, DECLARED)
    async with plugins.running() as harness:
        module = plugins.module("garden")
        harness.broker.audit(module.Dug(tool="spade", depth=3))
        at, entry = harness.audit.lines[-1]
        assert (module.Dug(tool="spade", depth=3), harness.clock.now()) == (entry, at)
        assert '"type":"garden.Dug","tool":"spade","depth":3' in line_of(entry, at)
        for wrong in (module.Filled(tool="spade"), module.Dug(tool=module.Secret(CANARY), depth=3)):
            with pytest.raises(BrokerError) as refused:
                harness.broker.audit(wrong)
            assert Code.REQUEST_INVALID is refused.value.code
        assert entry is harness.audit.entries[-1]


async def test_an_entry_that_cannot_be_written_raises_so_that_the_plugin_does_not_act(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.add("garden", WRITES, DECLARED)
    async with plugins.running() as harness:

        def refuse(*_: object) -> None:
            raise BrokerError(Code.STORE_UNAVAILABLE)

        monkeypatch.setattr(harness.audit, "write", refuse)
        with pytest.raises(BrokerError) as refused:
            harness.broker.audit(plugins.module("garden").Dug(tool="spade", depth=3))
        assert Code.STORE_UNAVAILABLE is refused.value.code


@pytest.mark.parametrize("types", ["(Secret,)", "(PluginAuditEntry,)", "17", "(Wrong,)"])
async def test_a_plugin_with_types_that_may_not_stand_in_the_log_stops_the_start(plugins: Plugins, types: str) -> None:
    code = f"{WRITES}\n\nclass Wrong(PluginAuditEntry, plugin='garden'):\n    token: Secret\n\n\nTYPES = {types}\n"
    plugins.add("garden", code, DECLARED)
    with pytest.raises(BrokerError, match="the plug-in garden: "):
        async with plugins.running():
            pytest.fail("it was opened")
    assert [] == plugins.heard("garden")
