"""Tags share one empty file by hard links where the file system has them, and are files of their own elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.repository.repository import KINDS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.file.place_checks import problems
from oauthbroker.store.file.tags import TagFiles
from oauthbroker.store.format.port import Key, Tag
from oauthbroker.store.migration.raw_files import RawFiles
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_file_store, open_keyring

MANY = 2500


def tags_below(data: Path) -> list[Path]:
    return [path for path in (data / "tags").glob("*/*/*") if path.is_file()]


def files_of(paths: list[Path]) -> set[int]:
    return {path.stat().st_ino for path in paths}


def many(count: int = MANY, start: int = 0) -> list[tuple[Key, Tag]]:
    """Tags of one app, all in one shard, and of a subject each, in 256."""
    keys = [Key("grants", f"{number:064x}") for number in range(start, start + count)]
    return [(key, Tag("grants", "app", "a" * 32)) for key in keys] + [
        (key, Tag("grants", "who", key.name[-2:] + key.name[-30:])) for key in keys
    ]


def tag_files(data: Path, fs: Fs | None = None) -> TagFiles:
    (data / "tags").mkdir(mode=0o700, parents=True, exist_ok=True)
    fs = fs or Fs()
    return TagFiles(fs, fs.open_root(data / "tags"))


def test_a_thousand_tags_take_one_file(tmp_path: Path) -> None:
    pairs = many()
    assert MANY == len(tag_files(tmp_path).add(pairs))
    there = tags_below(tmp_path)
    assert len(pairs) == len(there)
    assert len(pairs) // 1000 + 1 == len(files_of(there))
    assert max(path.stat().st_nlink for path in there) <= 1000, "few file systems allow more than 65,000 links"


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS])
def test_where_no_link_can_be_made_each_tag_is_a_file(tmp_path: Path, refusal: int) -> None:
    class NoLinks(Fs):
        def link(self, *_: object, **__: int) -> None:
            raise OSError(refusal, os.strerror(refusal))

    pairs, tags = many(3), tag_files(tmp_path, NoLinks())
    assert 3 == len(tags.add(pairs))
    assert len(pairs) == len(files_of(tags_below(tmp_path)))
    assert set() == tags.add(pairs)


def test_tags_that_are_files_stay_and_are_no_links(tmp_path: Path) -> None:
    """Those of an older version."""
    pairs, tags = many(3), tag_files(tmp_path)
    tags.add(pairs)
    before = {path: path.read_bytes() for path in tags_below(tmp_path)}
    for path in before:
        path.unlink()
        path.touch(0o600)
    assert set() == tags.add(pairs)
    assert len(before) == len(files_of(list(before)))
    for key, tag in pairs:
        tags.remove(key, [tag])
    assert [] == tags_below(tmp_path)


def test_a_removed_tag_takes_no_other_with_it(tmp_path: Path) -> None:
    pairs, tags = many(3), tag_files(tmp_path)
    tags.add(pairs)
    key, tag = pairs[0]
    tags.remove(key, [tag])
    assert [each.name for each, other in pairs[1:] if other == tag] == list(tags.names(tag))
    assert len(pairs) - 1 == len(tags_below(tmp_path))


def test_a_lost_empty_file_is_made_anew(tmp_path: Path) -> None:
    tags = tag_files(tmp_path)
    tags.add(many(3))
    (tmp_path / "tags/empty").unlink()
    assert 3 == len(tags.add(many(3, start=3)))
    assert 2 == len(files_of(tags_below(tmp_path)))


def copied_by(*command: str) -> Callable[[Path, Path], None]:
    def copy(source: Path, target: Path) -> None:
        subprocess.run([*command, source, target], check=True)

    return copy


def by_tar(source: Path, target: Path) -> None:
    packed = subprocess.run(["tar", "-C", source, "-cf", "-", "."], check=True, capture_output=True)
    target.mkdir(0o700)
    subprocess.run(["tar", "-C", target, "-xpf", "-"], input=packed.stdout, check=True)


COPIES: dict[str, tuple[Callable[[Path, Path], object], bool]] = {
    "cp -a": (copied_by("cp", "-a"), True),
    "tar": (by_tar, True),
    "cp -r, as rsync without -H": (copied_by("cp", "-rp"), False),
    "Python": (shutil.copytree, False),
}


@pytest.mark.parametrize(("copy", "keeps_links"), COPIES.values(), ids=COPIES)
async def test_a_copy_is_a_store_with_or_without_the_links(
    tmp_path: Path, copy: Callable[[Path, Path], object], keeps_links: bool
) -> None:
    store, names = open_file_store(tmp_path), [*"abc"]
    for name in names:
        tags = [store.tag("grants", "app", "mail"), store.tag("grants", "who", name)]
        await store.put(store.key("grants", name), name.encode(), expect=0, tags=tags)
    await store.close()
    copy(tmp_path / "store", tmp_path / "copy")
    data = tmp_path / "copy/data"
    assert (1 if keeps_links else 6) == len(files_of(tags_below(data)))
    assert [] == [*problems(tmp_path / "store"), *problems(tmp_path / "copy")]
    raw = RawFiles(tmp_path / "copy")
    assert 0 == raw.loose_tags("grants")
    assert [2] * 3 == [len(each.tags) for each in raw.records("grants")]
    raw.close()
    store = FileStore(tmp_path / "copy", open_keyring(tmp_path), kinds=KINDS, clock=SystemClock())
    await store.put(store.key("grants", "d"), b"d", expect=0, tags=[store.tag("grants", "app", "mail")])
    assert {*names, "d"} == {each.body.decode() async for each in store.find(store.tag("grants", "app", "mail"))}
    for name in names:
        assert [name.encode()] == [each.body async for each in store.find(store.tag("grants", "who", name))]
    await store.close()
