"""docs/tutorials/key.md: the script asks for keys by a page, and calls the API with them. Datadog is a scripted API."""

from __future__ import annotations

import asyncio
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.testing import Browser, Canaries
from tests.kit.cli import Desk, environment
from tests.kit.docs_shell import LINK, blocks, program
from tests.kit.shims import with_shims
from tests.story.cli.login_kit import Person
from tests.story.keys_kit import GOOD, key_api

pytestmark = pytest.mark.slow
PAGE = "docs/tutorials/key.md"
ADDRESS = "https://api.datadoghq.com"


async def test_a_refused_key_is_asked_for_again_and_a_good_one_is_kept(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    [app] = (yaml.safe_load(block) for block in blocks("yaml", page=PAGE))
    once, run = blocks("sh", page=PAGE)
    _, script = blocks("python", page=PAGE)
    env = environment(PATH=with_shims(tmp_path))
    async with key_api() as api:
        app["spec"] |= {"api": {"hosts": [api.url("")]}}
        app["spec"] |= {"verify": {"path": "/api/v2/current_user", "account": "datadog:user:{id}"}}
        desk.write("datadog", yaml.safe_dump(app))
        (tmp_path / "monitors.py").write_text(script.replace(ADDRESS, api.url("")), "utf-8")
        async with program("bash", "-euc", once, cwd=tmp_path, env=env) as shell:
            await shell.end()
        run = run.replace("python", "python -u")
        async with program("bash", "-euc", run, cwd=tmp_path, env=env) as asking:
            browser = Browser(canaries=canaries)
            await browser.open(await asking.says(f"Open {LINK}"))
            for key, stays in (("key-of-nobody-1", True), (GOOD, False)):
                fields = {"decision": "continue", "credential.apiKey": key, "credential.appKey": key}
                page = await browser.submit(fields, form=browser.page.form("decision"))
                assert stays is (page.status != 303), page.text
            said = await asking.end()
        assert "200" == said.splitlines()[-1]
        async with program("bash", "-euc", run, cwd=tmp_path, env=env) as again:
            said = await again.end()
        assert ("200", False) == (said.splitlines()[-1], "Open " in said)
        assert {(GOOD, GOOD)} == {
            (each.headers["dd-api-key"], each.headers["dd-application-key"]) for each in api.seen[1:]
        }


async def test_a_person_needs_one_command_and_a_file_for_an_api_without_a_preset(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    person = Person(tmp_path, canaries, monkeypatch, capsys)
    [app] = (yaml.safe_load(block) for block in blocks("yaml", page=PAGE))
    fields = {"apiKey": {"title": "API key"}}
    own = {name: app["spec"][name] for name in ("subjectMode", "owner")}
    own |= {"fields": fields, "inject": {"headers": {"X-Api-Key": "{apiKey}"}}}
    async with key_api() as api:
        hosts = {"api": {"hosts": [api.url("")]}, "verify": {"path": "/api/v2/current_user"}}
        for name, spec, keys in (("datadog", app["spec"], [GOOD, GOOD]), ("meter", own, [GOOD])):
            written = {**app, "metadata": {"name": name}, "spec": {**spec, **hosts}}
            person.places.app_file(name).write_text(yaml.safe_dump(written), "utf-8")
            done = await asyncio.to_thread(person.type, "login", name, answers=keys)
            assert 0 == done.code, done.err
            script = blocks("python", page=PAGE)[0].replace(ADDRESS, api.url("")).replace("datadog", name)
            assert "200\n" == await asyncio.to_thread(ran, script)


def ran(script: str) -> str:
    said = StringIO()
    with redirect_stdout(said):
        exec(compile(script, PAGE, "exec"), {})  # noqa: S102 - the page's code is under test
    return said.getvalue()
