"""docs/how-to/web-applications.md: each program in a process of its own, beside a broker that is served."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import Desk, environment, free_port, serving
from tests.kit.docs_shell import LINK, Program, agree, program
from tests.story.guides.guide import put_programs

pytestmark = pytest.mark.slow
ALICE = "idp:user:U234567"
FLASK = """
import sys
from flask_app import app
app.secret_key = "only a test's"
with app.test_client() as client:
    with client.session_transaction() as session:
        session["subject"] = sys.argv[1]
    answer = client.get("/messages")
    print(answer.status_code, answer.text)
"""
DJANGO = """
import sys
import django
from django.conf import settings
settings.configure(SECRET_KEY="only a test's")
django.setup()
from django.test import RequestFactory
from views import messages
request = RequestFactory().get("/messages")
request.session = {"subject": sys.argv[1]}
answer = messages(request)
print(answer.status_code, answer.content.decode())
"""
EAGER = """
import sys
import tasks
tasks.app.conf.update(task_always_eager=True, task_eager_propagates=True)
"""
TASK = EAGER + "print(tasks.report.delay(sys.argv[1]).get())"
EVENTS = EAGER + (
    "import runpy\n"
    "from celery.signals import task_success\n"
    "task_success.connect(lambda result, **_: print(result), weak=False)\n"
    "runpy.run_path('events.py')"
)


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture
def desk(tmp_path: Any, idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:  # fmt: skip
    """The page's programs beside a configuration."""
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    desk.ready_to_serve(idp)
    put_programs(
        tmp_path,
        "how-to/web-applications",
        **{"https://mail.example.com": idp.base_url, "redis://127.0.0.1:6379/0": "memory://"},
    )
    return desk


@pytest.fixture
def env(desk: Desk) -> dict[str, str]:
    desk.canaries.may_show("API key")
    key = desk.type("api-keys", "create", "web", "--role", "runtime").out.strip()
    desk.canaries.add(key, "API key")
    return environment(OAUTHBROKER_URL=desk.base, OAUTHBROKER_API_KEY=key)


@asynccontextmanager
async def running(desk: Desk, env: dict[str, str], driver: str) -> AsyncIterator[Program]:
    (desk.folder / "driver.py").write_text(driver, "utf-8")
    words = (sys.executable, "-u", "driver.py", ALICE)
    async with program(*words, cwd=desk.folder, env=env) as process:
        yield process


async def reported(desk: Desk, env: dict[str, str], driver: str) -> str:
    async with running(desk, env, driver) as process:
        return await process.end()


@pytest.mark.parametrize(
    ("driver", "ready"), [(FLASK, "Good morning, Alice"), (DJANGO, "connected")], ids=["flask", "django"]
)
async def test_a_page_shows_the_link_and_then_what_the_token_is_good_for(
    desk: Desk, env: dict[str, str], idp: IdentityProvider, driver: str, ready: str
) -> None:
    with serving(desk):
        async with running(desk, env, driver) as page:
            link = await page.says(f'href="{LINK}" target')
            assert (await page.end()).startswith("200 <p>")
        await agree(desk, idp, link, "alice")
        said = await reported(desk, env, driver)
    assert said.startswith("200 "), said
    assert ready in said
    desk.canaries.look(said, "the page")


@pytest.mark.parametrize("driver", [FLASK, DJANGO], ids=["flask", "django"])
async def test_a_page_says_so_while_the_broker_is_away(desk: Desk, env: dict[str, str], driver: str) -> None:
    away = env | {"OAUTHBROKER_URL": f"http://127.0.0.1:{free_port()}"}
    assert (await reported(desk, away, driver)).startswith("503 ")


async def test_a_task_that_had_to_ask_is_started_again_by_the_event(
    desk: Desk, env: dict[str, str], idp: IdentityProvider
) -> None:
    with serving(desk):
        async with running(desk, env, TASK) as task:
            link = await task.says(f"asked: {LINK}")
            await task.end()
        async with running(desk, env, EVENTS) as events:
            await agree(desk, idp, link, "alice")
            await events.says("(sent)")
        assert "sent" in (await reported(desk, env, TASK)).splitlines()


async def test_a_task_is_retried_while_the_broker_is_away(desk: Desk, env: dict[str, str]) -> None:
    away = env | {"OAUTHBROKER_URL": f"http://127.0.0.1:{free_port()}"}
    tried = EAGER + (
        "from celery.exceptions import Retry\n"
        "try:\n    tasks.report.delay(sys.argv[1])\nexcept Retry as retry:\n    print('in', retry.when, 'seconds')"
    )
    assert "in 30 seconds\n" == await reported(desk, away, tried)
