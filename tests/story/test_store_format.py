"""A store of another format is refused by one sentence that says who made it and what to do; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyrage
import pytest

from oauthbroker.cli.output.error_output import see
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.store.keys.keyring_document import FORMAT
from oauthbroker.testing import Canaries
from oauthbroker.wiring import init_store, migrate_store, open_vault
from oauthbroker.wiring.store_place import place_of
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk
from tests.kit.running_broker import tree

ENV = "BROKER_DATABASE_URL"
MAKE_ANEW = "write another place into spec.store, run `oauthbroker init`, and let the users connect again"
FORMATS = {
    "oab-keyring-1": f"a development version made the store, format 1: {MAKE_ANEW}",
    "oab-keyring-2": f"a development version made the store, format 2: {MAKE_ANEW}",
    "oauthbroker-store-2": "a newer version made the store, format 2: start that version",
}
COMMANDS = {
    "serve": ("serve",),
    "grants list": ("grants", "list"),
    "secrets list": ("secrets", "list"),
    "audit verify": ("audit", "verify"),
    "keys status": ("keys", "status"),
    "store verify": ("store", "verify"),
    "store copy": ("store", "copy", "store", "other"),
}


@pytest.fixture
def desk(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    return desk


def call_it(desk: Desk, found: str) -> dict[str, bytes]:
    """Let the keyring say that the store has another format."""
    keyring = desk.folder / "store" / "data" / "keyring"
    keyring.write_text(keyring.read_text("utf-8").replace(FORMAT, found), "utf-8")
    return tree(desk.folder / "store")


@pytest.mark.parametrize("found", FORMATS)
def test_a_store_in_files_of_another_format_is_refused_with_what_to_do(desk: Desk, found: str) -> None:
    before = call_it(desk, found)
    refused = desk.type("secrets", "list")
    said = f"{BrokerError(Code.STORE_FORMAT)} ({FORMATS[found]}; store: {desk.folder / 'store'})\n  {see(Code.STORE_FORMAT)}\n"
    assert (2, said) == (refused.code, refused.err)
    assert before == tree(desk.folder / "store")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_it_and_changes_nothing(desk: Desk, command: str) -> None:
    before = call_it(desk, "oab-keyring-2")
    refused = desk.type(*COMMANDS[command])
    assert (2, True) == (refused.code, MAKE_ANEW in refused.err), refused
    assert before == tree(desk.folder / "store")


def test_the_doctor_names_it(desk: Desk) -> None:
    before = call_it(desk, "oab-keyring-2")
    reported = desk.type("doctor", "--offline")
    assert "storeFormat" in reported.out, reported
    assert before == tree(desk.folder / "store")


def test_an_archive_of_one_is_refused(desk: Desk) -> None:
    identity = pyrage.x25519.Identity.generate()
    desk.canaries.add(str(identity), "identity")
    (desk.folder / "identity").touch(mode=0o600)
    (desk.folder / "identity").write_text(str(identity), "utf-8")
    desk.canaries.excuse(desk.folder / "identity")
    assert 0 == desk.type("store", "export", "store.age", "--recipient", str(identity.to_public())).code
    lines = pyrage.decrypt((desk.folder / "store.age").read_bytes(), [identity])
    older = lines.replace(FORMAT.encode(), b"oab-keyring-2")
    (desk.folder / "older.age").write_bytes(pyrage.encrypt(older, [identity.to_public()]))
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port).replace("../store", "../restored"))
    refused = desk.type("store", "import", "older.age", "--identity", "identity")
    assert 2 == refused.code, refused
    assert not (desk.folder / "restored" / "data" / "keyring").exists()


@pytest.fixture
def empty(postgres_server: postgres.Server) -> Iterator[Secret]:
    postgres_server.empty_database("formats")
    yield postgres_server.url("formats")
    postgres_server.run("drop database formats with (force)")


@pytest.mark.parametrize("schema", ["oauthbroker", "oauthbroker_closed"])
async def test_tables_of_a_development_version_are_refused_with_what_to_do(
    postgres_server: postgres.Server, empty: Secret, tmp_path: Path, schema: str
) -> None:
    env = {ENV: empty.reveal()}
    here = Settings(store_root=str(tmp_path / "store"), store_url_env=ENV, key_file=str(tmp_path / "keys" / "kek"))
    init_store(here, env, SystemClock())
    postgres_server.run("alter table oauthbroker.schema_version rename to migration", "formats")
    if schema != "oauthbroker":
        postgres_server.run(f"alter schema oauthbroker rename to {schema}", "formats")
    note = f"a development version made the store, with a table `migration`: {MAKE_ANEW}"
    with pytest.raises(BrokerError) as refused:
        async with open_vault(here, env=env):
            pass
    placed = f"{note}; {place_of(f'env:{ENV}', env)}"
    assert (Code.STORE_FORMAT, placed) == (refused.value.code, refused.value.note)
    for work, said in ((lambda: migrate_store(empty), note), (lambda: init_store(here, env, SystemClock()), placed)):
        with pytest.raises(BrokerError) as refused:
            work()
        assert (Code.STORE_FORMAT, said) == (refused.value.code, refused.value.note)


async def test_a_keyring_of_another_format_in_a_database_is_refused(
    postgres_server: postgres.Server, empty: Secret, tmp_path: Path
) -> None:
    env = {ENV: empty.reveal()}
    here = Settings(store_root=str(tmp_path / "store"), store_url_env=ENV, key_file=str(tmp_path / "keys" / "kek"))
    init_store(here, env, SystemClock())
    newer = f"convert_to(replace(convert_from(document, 'UTF8'), '{FORMAT}', 'oauthbroker-store-2'), 'UTF8')"
    postgres_server.run(f"update oauthbroker.keyring set document = {newer}", "formats")  # noqa: S608
    with pytest.raises(BrokerError) as refused:
        async with open_vault(here, env=env):
            pass
    assert (Code.STORE_FORMAT, True) == (refused.value.code, FORMATS["oauthbroker-store-2"] in refused.value.note)
