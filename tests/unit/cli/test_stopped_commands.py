"""Ctrl-C in a command on many records: it counts the finished and the other ones, and goes on when it is repeated."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import cli
from oauthbroker.cli import keys, store, stored_records
from oauthbroker.cli.grants import grants_erase, grants_import, grants_revoke
from oauthbroker.cli.grants.reading import Chosen
from oauthbroker.cli.output.progress import Stopped
from oauthbroker.config.bundle import server_environment
from oauthbroker.core.errors import Code
from oauthbroker.core.refused import REFUSED, STOPPED
from oauthbroker.grants.found_records import FoundRecords
from oauthbroker.grants.import_lines import CheckedLines, LineProblem
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.revocation.bulk import RevocationFigures
from oauthbroker.wiring import backup, migration

KEYS = [GrantKey("mail", f"idp:user:{number}") for number in range(6)]
CONFIG = Path("config")


def stopped(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


async def stopped_later(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.fixture
def revoking(monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """Six grants, of which one ended before. Ctrl-C comes after two ended and one could not."""

    async def end(_: Path, chosen: Chosen, __: float, figures: RevocationFigures, ___: Any) -> None:
        figures.ended = 2
        figures.over |= {*chosen.keys[:2]}
        figures.failed[chosen.keys[2]] = Code.STORE_LOCKED
        raise KeyboardInterrupt

    monkeypatch.setattr(grants_revoke, "_end", end)
    monkeypatch.setattr(grants_revoke, "_credential_pages", lambda _: {})
    return Chosen(keys=[*KEYS], ended={KEYS[5]})


def test_a_stopped_revoke_says_how_many_grants_are_not_ended(
    revoking: Chosen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert STOPPED == grants_revoke.run(CONFIG, revoking, 0, as_json=False)
    said = capsys.readouterr()
    rows = dict(line.rsplit(maxsplit=1) for line in said.out.splitlines())
    counts = {name.strip(): int(count) for name, count in rows.items()}
    assert (2, 3, 2) == (counts["ended here"], counts["left to tell"], counts["NOT ended"])
    assert "2 grants are not ended: type this again." in said.err
    assert "running broker" not in said.err


def test_a_stopped_revoke_of_one_grant_says_who_tells_its_provider(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def end(_: Path, chosen: Chosen, __: float, figures: RevocationFigures, ___: Any) -> None:
        figures.ended = 1
        figures.over |= {*chosen.keys}
        raise KeyboardInterrupt

    monkeypatch.setattr(grants_revoke, "_end", end)
    monkeypatch.setattr(grants_revoke, "_credential_pages", lambda _: {})
    assert STOPPED == grants_revoke.run(CONFIG, Chosen(keys=KEYS[:1]), 0, as_json=False)
    assert "A running broker tells the other providers, or type this again." in capsys.readouterr().err


def test_a_stopped_revoke_in_json_names_the_grants_that_are_not_ended(
    revoking: Chosen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert STOPPED == grants_revoke.run(CONFIG, revoking, 0, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (6, 2, 2, 1) == (said["chosen"], said["ended"], said["notEnded"], said["failed"])
    assert 3 == said["provider"]["later"]
    failed = [each.get("failed") for each in said["grants"]]
    assert [None, None, "storeLocked", "stopped", "stopped", None] == failed


def test_a_stopped_import_says_how_many_lines_are_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: Any = [SimpleNamespace(line=number, app="mail", key=KEYS[number]) for number in range(3)]

    async def write(_: Path, __: Any, figures: Any, **___: Any) -> None:
        figures.outcomes[0] = "imported"
        raise KeyboardInterrupt

    monkeypatch.setattr(grants_import, "load_here", lambda _: None)
    monkeypatch.setattr(grants_import, "_validated", lambda *_: CheckedLines(lines, []))
    monkeypatch.setattr(grants_import, "_import", write)
    assert STOPPED == grants_import.run(CONFIG, "-", grants_import.Wanted())
    said = capsys.readouterr()
    assert ["NOT", "written", "2"] in [line.split() for line in said.out.splitlines()]
    assert "2 lines not written. Type this again: lines already done are not repeated." in said.err


@pytest.mark.parametrize("where", ["_validated", "_foresee"])
def test_an_import_that_is_stopped_before_the_first_change_leaves_no_file_of_refused_lines(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grants_import, "load_here", lambda _: None)
    monkeypatch.setattr(grants_import, "_validated", lambda *_: CheckedLines([], [LineProblem(1, "it is empty")]))
    monkeypatch.setattr(grants_import, where, stopped)
    file = tmp_path / "refused.jsonl"
    assert STOPPED == cli.run(["grants", "import", "-", "--dry-run", "--refused", str(file)])
    assert "Stopped. Nothing was changed." in capsys.readouterr().err
    assert not file.exists()


def test_an_import_that_changes_nothing_leaves_no_file_of_refused_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grants_import, "load_here", lambda _: SimpleNamespace(apps={}))
    file, line = tmp_path / "refused.jsonl", ["grants", "import", "-", "--refused", str(tmp_path / "refused.jsonl")]
    assert REFUSED == cli.run([*line, "--app", "other"])
    assert "Nothing was changed." in capsys.readouterr().err
    assert not file.exists()
    file.write_text("of an earlier run")
    assert REFUSED == cli.run([*line, "--app", "other"])
    assert "of an earlier run" == file.read_text()


async def test_a_stopped_import_counts_the_lines_whose_grants_are_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: Any = [SimpleNamespace(line=number, app="mail") for number in range(2 * grants_import.WRITTEN_AT_ONCE)]
    written, figures = set[int](), grants_import.ImportFigures()

    async def import_grant(line: Any, *, replace: bool) -> str:
        written.add(line.line)
        stopping.cancel()
        await asyncio.sleep(0.01)
        return "replaced" if replace else "imported"

    @asynccontextmanager
    async def opened(*_: Any, **__: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(grants=SimpleNamespace(importing=SimpleNamespace(import_grant=import_grant)))

    monkeypatch.setattr(grants_import, "open_broker", opened)
    stopping = asyncio.ensure_future(grants_import._import(CONFIG, lines, figures, replace=False, verify=False))
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert 0 < len(written) < len(lines)
    assert written == figures.outcomes.keys()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_stopped_verification_says_how_many_lines_no_provider_was_asked_about(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: Any = [
        SimpleNamespace(line=at, app="mail", subject=key.subject, connection="", key=key) for at, key in enumerate(KEYS)
    ]

    async def write(_: Path, __: Any, figures: Any, **___: Any) -> None:
        figures.outcomes |= {**dict.fromkeys(range(4), "imported"), 4: "kept", 5: "there"}
        figures.verified.add(0)
        figures.unsound[1] = Code.SUBJECT_UNVERIFIABLE
        raise KeyboardInterrupt

    monkeypatch.setattr(grants_import, "load_here", lambda _: None)
    monkeypatch.setattr(grants_import, "_validated", lambda *_: CheckedLines(lines, []))
    monkeypatch.setattr(grants_import, "_import", write)
    assert STOPPED == grants_import.run(CONFIG, "-", grants_import.Wanted(verify=True, as_json=as_json))
    said = capsys.readouterr()
    if as_json:
        found = json.loads(said.out)
        assert (1, 1, 3, None) == tuple(found[it] for it in ("verified", "notVerified", "toVerify", "unverified"))
    else:
        assert ["left", "to", "verify", "3"] in [line.split() for line in said.out.splitlines()]
        assert "3 lines to verify. Type this again: lines already done are not repeated." in said.err


@pytest.mark.parametrize("command", ["erase", "reseal", "store copy", "store import"])
def test_a_stopped_command_that_may_be_repeated_says_so(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = FoundRecords(subject="idp:user:1", uses=["sha256:1"])

    async def look(*_: Any) -> FoundRecords:
        return found

    loaded: Any = SimpleNamespace(settings=None, env={})
    monkeypatch.setattr(grants_erase, "_look", look)
    monkeypatch.setattr(grants_erase, "_erase", stopped_later)
    monkeypatch.setattr(keys, "_run", stopped)
    monkeypatch.setattr(store, "_settings", lambda _: (None, {}, None))
    monkeypatch.setattr(server_environment, "load_here", lambda _: loaded)
    monkeypatch.setattr(migration, "copy_store", stopped)
    monkeypatch.setattr(backup, "import_store", stopped)
    run: dict[str, Callable[[], object]] = {
        "erase": lambda: grants_erase.run(CONFIG, found.subject, 0, dry_run=False, yes=True, as_json=True),
        "reseal": lambda: keys.reseal_command(config=CONFIG),
        "store copy": lambda: store.copy_command("one", "two", config=CONFIG),
        "store import": lambda: store.import_command(Path("file"), Path("identity"), config=CONFIG),
    }
    with pytest.raises(Stopped, match=r"Stopped\. Type this again: finished records are not repeated\."):
        run[command]()


READING = {
    "init": ["init"],
    "grants revoke": ["grants", "revoke", "--app", "mail", "--all", "--yes"],
    "grants erase": ["grants", "erase", "--subject", "idp:user:1", "--yes"],
    "grants import": ["grants", "import", "-"],
    "secrets set": ["secrets", "set", "mail", "key"],
    "secrets remove": ["secrets", "remove", "mail", "--yes"],
    "api-keys create": ["api-keys", "create", "ci", "--role", "runtime"],
    "queues retry": ["queues", "retry", "evt-abcdef"],
    "keys rotate": ["keys", "rotate"],
    "keys rewrap": ["keys", "rewrap"],
    "store copy": ["store", "copy", "one", "two"],
    "store import": ["store", "import", "file", "--identity", "identity"],
    "store accept-restore": ["store", "accept-restore", "--yes"],
    "store migrate": ["store", "migrate"],
    "audit verify": ["audit", "verify"],
}


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_that_is_stopped_while_it_reads_says_that_nothing_was_changed(
    name: str, as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"value")))
    for module in (server_environment, grants_import, grants_revoke):
        monkeypatch.setattr(module, "load_here", stopped)
    monkeypatch.setattr(grants_erase, "_look", stopped_later)
    assert STOPPED == cli.run([*READING[name], *(["--json"] if as_json else [])])
    said = capsys.readouterr()
    assert "Stopped. Nothing was changed.\n" == said.err
    document = {"error": {"code": "stopped", "message": "Stopped. Nothing was changed."}} if as_json else None
    assert document == (json.loads(said.out) if as_json else None)


def test_a_command_that_is_stopped_while_it_is_loaded_has_changed_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "command_of", stopped)
    assert STOPPED == cli.run(["init"])
    assert "Stopped. Nothing was changed.\n" == capsys.readouterr().err


def test_a_command_that_is_stopped_while_it_writes_says_that_it_may_have_changed_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def vault(_: Path) -> AsyncIterator[Any]:
        yield SimpleNamespace(secrets=SimpleNamespace(remove=stopped_later))

    monkeypatch.setattr(stored_records, "vault_of", vault)
    assert STOPPED == cli.run(["secrets", "remove", "mail", "--yes"])
    assert "If it changes something, look how far it came before you type it again." in capsys.readouterr().err
