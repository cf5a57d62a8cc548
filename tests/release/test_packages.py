"""The built packages: the same bytes twice, nothing that should not be in them, and they work alone in an empty folder.

`make dist`, the next step of CI, installs them and the TypeScript package with the pinned packages, and tries each.
"""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from oauthbroker import __version__
from oauthbroker.testing import Browser, Canaries
from release.building import Built, build, commit_time, copied, differing, digest, tracked
from release.trying import environment
from tests.kit.docs_shell import LINK, blocks, program
from tests.kit.packages import bare_environment, built, dist_folder, shared_folder

pytestmark = pytest.mark.slow
INFO = f"oauthbroker-{__version__}.dist-info"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    return shared_folder(tmp_path_factory.getbasetemp(), worker_id)


@pytest.fixture(scope="module")
def packages(shared: Path) -> Built:
    """Built twice and once more from the sdist: a difference of one byte fails here."""
    return built(shared)


def test_the_wheel_holds_the_package_and_nothing_else(packages: Built):
    names = {name for name in zipfile.ZipFile(packages.wheel).namelist() if not name.startswith(f"{INFO}/")}
    pages = ["oauthbroker/docs/errors.md"]  # which the commands name
    pages += [f"oauthbroker/docs/monitoring/{name}" for name in ("alerts.yaml", "dashboard.json")]  # and write
    assert {*pages, *(name for name in tracked() if name.startswith("oauthbroker/"))} == names
    said = Parser().parsestr(zipfile.ZipFile(packages.wheel).read(f"{INFO}/METADATA").decode())
    assert ("oauthbroker", __version__, "Apache-2.0") == (said["Name"], said["Version"], said["License-Expression"])
    assert f"{INFO}/licenses/LICENSE" in zipfile.ZipFile(packages.wheel).namelist()


def test_the_sdist_holds_what_git_tracks(packages: Built):
    with tarfile.open(packages.sdist) as archive:
        files = [each for each in archive.getmembers() if each.isfile()]
    names = {each.name.partition("/")[2] for each in files}
    assert {"PKG-INFO"} == names - set(tracked())
    assert set() == set(tracked()) - names
    assert {commit_time()} == {str(each.mtime) for each in files}


def test_a_byte_that_changes_is_noticed(packages: Built, tmp_path: Path):
    source = copied(tracked(), tmp_path / "source")
    (source / "oauthbroker" / "py.typed").write_text("changed")
    other = build(source, tmp_path / "dist", commit_time(), "-t", "wheel")
    assert packages.wheel.name == other.wheel.name
    assert differing({"wheel": digest(packages.wheel)}, {"wheel": digest(other.wheel)})


async def test_the_readmes_start_works_as_printed_in_an_empty_folder(packages: Built, tmp_path: Path):
    """The page's lines, word for word; only the person at the browser is played."""
    programs = bare_environment(tmp_path / "env")
    folder = tmp_path / "empty"
    folder.mkdir()
    dist_folder(packages, folder)
    [lines] = blocks("sh", "Install", "README.md")
    async with program("bash", "-euc", lines, cwd=folder, env=environment(programs, folder)) as shell:
        link = await shell.says(LINK)
        with Canaries():  # the demo's provider has marks of its own
            browser = Browser()
            page = await browser.open(link)
            for fields in ({}, {"login": "alice"}, {"decision": "allow"}):
                page = await browser.submit(fields) if fields else await browser.submit()
                while page.next_url:
                    page = await browser.follow()
        said = await shell.end()
    assert "ready: a token" in said
