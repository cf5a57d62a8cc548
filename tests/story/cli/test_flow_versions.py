"""Deployed versions of flow tools belong to the broker's store: they are on every host, and go where it goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk
from tests.unit.flowtools.kit import written

pytestmark = [pytest.mark.rule("001-deploy"), pytest.mark.slow]
ENV, DATABASE = "BROKER_DATABASE_URL", "flow_versions"
PERSON = "shop:user:ann"
COMMANDS = {
    "acknowledge": ("acknowledge", "tool.json", "--by", "ada"),
    "deploy": ("deploy", "tool.json"),
    "activate": ("activate", "tool", "1"),
    "withdraw": ("withdraw", "tool", "1"),
    "versions": ("versions",),
    "run": ("run", "tool"),
}


def set_up(desk: Desk, *, database: bool) -> None:
    """Write the configuration of a broker with flow tools; its store is in a folder, or in the database."""
    text = BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n"
    url = f"{{root: ../store, url: {{valueFrom: {{env: {ENV}}}}}}}"
    desk.write("broker", text.replace("{root: ../store}", url) if database else text)


def write_tool(desk: Desk, version: int) -> None:
    (desk.folder / "tool.json").write_text(json.dumps(written({"a": "transform"}, [], version=version)), "utf-8")


@pytest.fixture
def url(postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty database for a store, whose URL is in the environment."""
    postgres_server.empty_database(DATABASE)
    monkeypatch.setenv(ENV, postgres_server.url(DATABASE).reveal())
    yield
    postgres_server.run(f"drop database {DATABASE} with (force)")


@pytest.fixture
def desk(desk: Desk, idp: IdentityProvider) -> Desk:
    """A desk whose tool has two versions in a store in files; the first one serves, and the second is withdrawn."""
    set_up(desk, database=False)
    desk.ready_to_serve(idp)
    for version in (1, 2):
        write_tool(desk, version)
        assert 0 == desk.type("flow", "deploy", "tool.json", "--by", "ada").code
    assert 0 == desk.type("flow", "withdraw", "tool", "2", "--by", "bob", "--why", "no roles").code
    return desk


def versions(desk: Desk, *words: str) -> list[dict[str, Any]]:
    done = desk.type("flow", "versions", "--json", *words)
    assert 0 == done.code, done
    rows: list[dict[str, Any]] = json.loads(done.out)["versions"]
    return rows


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("folder", ["absent", "empty"])
def test_a_configuration_that_is_not_there_is_refused_by_its_name_and_nothing_is_made(
    desk: Desk, name: str, folder: str
) -> None:
    (desk.folder / "empty").mkdir()
    before = sorted(each for each in desk.folder.rglob("*") if "audit" not in each.parts)
    done = desk.type("flow", *COMMANDS[name], "--config", folder)
    assert (2, True) == (done.code, folder in done.err), done
    assert before == sorted(each for each in desk.folder.rglob("*") if "audit" not in each.parts)


def test_an_erasure_leaves_versions_and_their_records(desk: Desk) -> None:
    before = versions(desk)
    assert [(1, True, None), (2, False, "bob")] == [
        (each["version"], each["serves"], each["withdrawn"] and each["withdrawn"]["by"]) for each in before
    ]
    assert 0 == desk.type("grants", "erase", "--subject", PERSON, "--yes").code
    assert before == versions(desk)


@pytest.mark.usefixtures("url")
def test_versions_move_with_the_store_to_postgresql_and_back(desk: Desk) -> None:
    before = versions(desk)
    for database, places in ((True, ("store", f"env:{ENV}")), (False, (f"env:{ENV}", "again"))):
        done = desk.type("store", "copy", *places, "--cut-over")
        assert 0 == done.code, done
        set_up(desk, database=database)
        if not database:
            shutil.move(desk.folder / "store", desk.folder / "old")
            shutil.move(desk.folder / "again", desk.folder / "store")
        assert before == versions(desk)
    write_tool(desk, 3)
    assert 0 == desk.type("flow", "deploy", "tool.json").code
    assert [1, 2, 3] == [each["version"] for each in versions(desk)]


@pytest.mark.usefixtures("url")
def test_a_version_that_was_deployed_on_one_host_is_on_the_other(desk: Desk) -> None:
    """Two folders have one configuration, one key and one database."""
    set_up(desk, database=True)
    assert 0 == desk.type("store", "copy", "store", f"env:{ENV}", "--cut-over").code
    shutil.rmtree(desk.folder / "store")
    other = Path("other")
    for name in ("config", "keys"):
        shutil.copytree(desk.folder / name, other / name)
    desk.canaries.excuse(desk.folder / other / "keys" / "broker.kek")
    there = ("--config", "other/config")
    assert versions(desk) == versions(desk, *there)
    write_tool(desk, 3)
    assert 0 == desk.type("flow", "deploy", "tool.json", "--by", "ada").code
    assert 0 == desk.type("flow", "activate", "tool", "3", "--by", "eve", *there).code
    assert [("ada", False), ("ada", False), ("ada", True)] == [(each["by"], each["serves"]) for each in versions(desk)]
    write_tool(desk, 1)
    (desk.folder / "tool.json").write_text((desk.folder / "tool.json").read_text().replace("{", "{ ", 1), "utf-8")
    refused = desk.type("flow", "deploy", "tool.json", *there)
    assert (1, True) == (refused.code, "this version exists with other bytes" in refused.out.lower()), refused


def test_a_typo_of_a_tool_or_a_file_is_answered_with_the_nearest_name(desk: Desk) -> None:
    (desk.folder / "tools").mkdir()
    for words, said in (
        (("versions", "tol"), "tol is not deployed; the nearest known name is tool"),
        (("activate", "tol", "1"), "tol@1 is not deployed; the nearest known name is tool"),
        (("activate", "tool", "7"), "tool@7 is not deployed; deployed versions: 1, 2"),
        (("versions", "other"), "other is not deployed; flow versions lists the deployed ones"),
        (("deploy", "tol.json"), "tol.json: no such file; the nearest known name is tool.json"),
        (("deploy", "shop"), "shop: no such file; name a JSON or YAML file"),
        (("deploy", "tools"), "tools is a folder; name one of its files"),
    ):
        done = desk.type("flow", *words)
        assert (2, f"requestInvalid: {said}\n") == (done.code, done.err)


def test_lists_of_versions_and_secrets_end_at_a_limit_and_say_how_to_see_all(desk: Desk) -> None:
    done = desk.type("flow", "versions", "--limit", "1")
    assert ("Shown are 1 of 2: --limit 2 shows all.\n", 1) == (done.err, len(done.out.splitlines()))
    assert [1, 2] == [row["version"] for row in versions(desk)]
    for name in ("a", "b"):
        assert 0 == desk.type("flow", "secret", "set", name, stdin=name + "s" * 32).code
    done = desk.type("flow", "secret", "list", "-n", "1")
    assert ("Shown are 1 of 2: --limit 2 shows all.\n", "a  1 valid\n") == (done.err, done.out)
