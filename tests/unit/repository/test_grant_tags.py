"""Grants are found by their app and their people without reading all; a refresh writes no tag."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.model.turn import ResumeTarget, TurnAuth
from oauthbroker.records import Grant, Retired
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.store.format.port import Entry, Key, Tag
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.testing.stores import open_file_store
from tests.kit.broker_process import Process
from tests.kit.samples import grant_with
from tests.unit.records import kit

ALICE, BOB = "acme:user:1", "acme:user:2"


class Noting(MemoryStore):
    """Notes the tags of each write, and the entries that are opened."""

    def __init__(self) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=TestClock())
        self.put_tags = list[Collection[Tag] | None]()
        self.scanned = 0

    async def put(self, key: Key, body: bytes, *, tags: Collection[Tag] | None = None, **more: Any) -> Entry:
        self.put_tags.append(tags)
        return await super().put(key, body, tags=tags, **more)

    async def scan(self, kind: str, **more: Any) -> AsyncIterator[Entry]:
        async for entry in super().scan(kind, **more):
            self.scanned += kind == "grants"
            yield entry


@pytest.fixture
def store() -> Noting:
    return Noting()


@pytest.fixture
def repository(store: Noting) -> Repository:
    return Repository(store)


async def names(found: AsyncIterator[Versioned[Grant]]) -> list[tuple[str, str]]:
    return sorted([(versioned.record.app, versioned.record.subject) async for versioned in found])


async def test_grants_are_found_by_app_and_by_people_and_no_other_is_opened(store, repository):
    for grant in (
        grant_with(),
        grant_with(app="calendar"),
        grant_with(subject=BOB),
        grant_with(app="team", subject="acme:team:1", authorized_by=ALICE),
    ):
        await repository.save_grant(grant, expect=0)
    theirs = [("calendar", ALICE), ("mail", ALICE), ("team", "acme:team:1")]
    assert theirs == await names(repository.grants_with(ALICE))
    assert [("mail", ALICE), ("mail", BOB)] == await names(repository.grants_of_app("mail"))
    assert [] == await names(repository.grants_with("acme:user:3"))
    assert 0 == store.scanned


async def test_tags_are_written_when_they_may_have_changed_and_never_by_a_refresh(store, repository):
    versioned = await repository.save_grant(grant_with(), expect=0)
    versioned = await repository.save_grant(
        replace(versioned.record, scopes=("read", "write")), expect=versioned.generation
    )
    versioned = await repository.save_grant(replace(versioned.record, authorized_by=ALICE), expect=versioned.generation)
    versioned = await repository.save_grant(replace(versioned.record, authorized_by=BOB), expect=versioned.generation)
    assert [2, 0, 0, 3] == [len(tags or ()) for tags in store.put_tags]
    await Repository(store).save_grant(versioned.record, expect=versioned.generation)
    assert 3 == len(store.put_tags[-1] or ()), "a process that does not know the version before writes all"


async def test_a_tag_that_a_grant_has_no_longer_is_removed_by_the_look_that_meets_it(store, repository):
    versioned = await repository.save_grant(grant_with(authorized_by=BOB), expect=0)
    await repository.save_grant(replace(versioned.record, authorized_by=None), expect=versioned.generation)
    bobs = store.tag("grants", "who", BOB)
    assert 1 == len([entry async for entry in store.find(bobs)])
    assert [] == await names(repository.grants_with(BOB))
    assert 0 == len([entry async for entry in store.find(bobs)])
    assert [("mail", ALICE)] == await names(repository.grants_with(ALICE))


async def test_an_erased_grant_leaves_no_tag(tmp_path):
    store = open_file_store(tmp_path)
    repository = Repository(store)
    versioned = await repository.save_grant(grant_with(), expect=0)
    tags = tmp_path / "store" / "data" / "tags"
    assert 3 == len(files(tags)), "two tags, and the empty file that they are links of"
    await repository.erase_grant(versioned)
    assert [tags / "empty"] == files(tags)
    await store.close()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("lost", [lambda folder: True, lambda folder: folder.name.endswith("who")], ids=["all", "who"])
async def test_a_running_broker_finds_and_repairs_a_missing_tag(tmp_path, lost: Callable[[Path], bool]):
    clock = TestClock()
    process = Process.on(open_file_store(tmp_path, clock=clock), [], clock)
    repository = process.parts.repository
    await repository.save_grant(grant_with(), expect=0)
    for folder in (tmp_path / "store" / "data" / "tags").iterdir():
        for path in files(folder) if lost(folder) else []:
            path.unlink()
    assert [] == await names(repository.grants_with(ALICE))
    assert 1 == await process.parts.background_refresh.repair()
    assert [("mail", ALICE)] == await names(repository.grants_with(ALICE))
    clock.advance(10_000)
    assert 0 == await process.parts.background_refresh.repair()
    await process.die()


async def test_a_grant_is_found_by_who_agreed_to_replaced_tokens_that_it_keeps(repository):
    """Tokens of another client id, which that account agreed to."""
    replaced = replace(Retired.of(Secret("r"), None, kit.UPDATED), registration="old client", authorized_by=BOB)
    versioned = await repository.save_grant(grant_with(), expect=0)
    await repository.save_grant(versioned.record.owing(replaced), expect=versioned.generation)
    assert [("mail", ALICE)] == await names(repository.grants_with(BOB))


async def test_heads_are_those_of_all_grants_or_of_an_app_and_the_rest_is_with_those_that_name_a_subject(
    store: Noting, repository: Repository
) -> None:
    resume = ResumeTarget("planner", "C1", auth=TurnAuth({"user": ALICE}))
    changes: list[dict[str, Any]] = [
        {"subject": ALICE},
        {"authorized_by": ALICE},
        {"resume": resume},
        {"app": "files"},
        {"account": "work"},
    ]
    for number, each in enumerate(changes):
        await repository.save_grant(grant_with(**{"app": "mail", "subject": f"{BOB}-{number}"} | each), expect=0)
    await store.put(store.key("grants", "elsewhere"), kit.grant(subject="other").to_plaintext(), expect=0)
    keys = {head.key async for head in repository.grant_heads()}
    assert {versioned.record.key async for versioned in repository.grants()} == keys, "a misplaced record is in neither"
    assert 5 == len(keys)
    [other] = [versioned async for versioned in repository.grants() if versioned.record.key.account == "work"]
    await store.retag([(other.entry, [store.tag("grants", "app", "files")])])
    assert {key for key in keys if key.app == "files"} == {head.key async for head in repository.grant_heads("files")}
    named = {head.key: whole async for head, whole in repository.grants_that_name(ALICE)}
    assert keys == named.keys()
    assert [ALICE, f"{BOB}-1", f"{BOB}-2"] == sorted(whole.subject for whole in named.values() if whole is not None)


async def test_a_grant_takes_one_inode_with_any_tags(tmp_path: Path) -> None:
    """The folders of tags and the empty files for locks have a bound; docs/scaling.md says what a volume needs."""
    repository = Repository(open_file_store(tmp_path))
    for number in range(40):
        await repository.save_grant(grant_with(subject=f"acme:user:1{number}", authorized_by=BOB), expect=0)
    data = tmp_path / "store" / "data"
    tags = [path for path in (data / "tags").rglob("*") if path.is_file() and path.name != "empty"]
    assert 3 * 40 == len(tags), "by app, by subject and by who agreed"
    inodes = {path.stat().st_ino for kind in ("grants", "tags") for path in (data / kind).rglob("*") if path.is_file()}
    assert 40 + 1 == len(inodes), "one for each record, and one for all tags"
