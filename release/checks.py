"""Gather what the repository says about its version, and name each two places that disagree."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.core.version import VERSION
from release.building import ROOT, ran

CLIENT = "clients/typescript"
URLS = frozenset({"Changelog", "Documentation", "Issues", "Repository"})
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the repository says. `tags` maps each version tag to its commit."""

    version: str
    head: str
    changed: tuple[str, ...]
    npm: dict[str, str]
    changelog: str
    tags: dict[str, str]
    urls: frozenset[str]


def gathered(root: Path = ROOT) -> Facts:
    """Read the repository, and change nothing."""
    package, lock = (
        json.loads((root / CLIENT / name).read_text("utf-8")) for name in ("package.json", "package-lock.json")
    )
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    source = re.search(r'VERSION = "(.*)"', (root / CLIENT / "src/version.ts").read_text("utf-8"))
    listed = ran("git", "tag", "--list", "v*", "--format=%(refname:short) %(objectname) %(*objectname)", cwd=root)
    return Facts(
        version=VERSION,
        head=ran("git", "rev-parse", "HEAD", cwd=root).strip(),
        changed=tuple(line[3:] for line in ran("git", "status", "--porcelain", cwd=root).splitlines()),
        npm={
            "package.json": package["version"],
            "package-lock.json": lock["version"],
            "src/version.ts": source[1] if source else "none",
        },
        changelog=(root / "CHANGELOG.md").read_text("utf-8"),
        tags={
            words[0]: words[-1] for words in map(str.split, listed.splitlines())
        },  # an annotated tag's commit is last
        urls=frozenset(project.get("urls", {})),
    )


def disagreements(facts: Facts) -> list[str]:
    """Return one sentence for each disagreement, with what to do; none if a release may be made."""
    return [*_of_tree(facts), *_of_changelog(facts), *_of_npm(facts), *_of_tags(facts), *_of_urls(facts)]


def _of_tree(facts: Facts) -> Iterator[str]:
    if facts.changed:
        more = f" and {len(facts.changed) - 3} more" if len(facts.changed) > 3 else ""
        yield f"The tree has changes that are not committed: {', '.join(facts.changed[:3])}{more}. Commit them."


def _of_changelog(facts: Facts) -> Iterator[str]:
    """The newest heading with a version is this version's, has a date, and nothing is unreleased above it."""
    found = list(HEADING.finditer(facts.changelog))
    released = [heading for heading in found if heading[1] != "Unreleased"]
    newest = released[0] if released else None
    if newest is None or newest[1] != facts.version:
        has = "no released version" if newest is None else newest[1]
        yield f"CHANGELOG.md begins with {has}, and the version is {facts.version}. Give it a heading of this version."
        return
    if newest[2] is None:
        yield f"CHANGELOG.md has no date for {facts.version}. Write it as `## [{facts.version}] - YYYY-MM-DD`."
    above = facts.changelog[found[0].end() : newest.start()] if found[0] is not newest else ""
    if above.strip():
        yield f"CHANGELOG.md has unreleased lines above {facts.version}. Move them below its heading."


def _of_npm(facts: Facts) -> Iterator[str]:
    for name, version in facts.npm.items():
        if version != facts.version:
            yield f"{CLIENT}/{name} has version {version}, and the version is {facts.version}. Set it."


def _of_urls(facts: Facts) -> Iterator[str]:
    """A package's page links to where its source, changes and issues are."""
    missing = sorted(URLS - facts.urls)
    if missing:
        yield f"pyproject.toml has no {', '.join(missing)} in [project.urls]. Write the addresses of the repository."


def _of_tags(facts: Facts) -> Iterator[str]:
    name = f"v{facts.version}"
    at = facts.tags.get(name)
    if at is None:
        yield f"There is no tag {name}. Make it on this commit: git tag {name}."
    elif at != facts.head:
        here = facts.head[:12]
        yield f"The tag {name} is on {at[:12]}, and this commit is {here}. Release that commit, or set a new version."
