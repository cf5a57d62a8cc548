"""Pack the TypeScript client, and look at the package as its users get it."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path

from release.building import ROOT, digest, ran

HOME = ROOT / "clients" / "typescript"
USER = """
import { createOAuthFromEnv, type OAuthTokenResult } from "@oauthbroker/client";
import { unixSocketFetch } from "@oauthbroker/client/node";
export const ask = (): Promise<OAuthTokenResult> =>
  createOAuthFromEnv().getAccessToken({ oauthAppRef: { kind: "OAuthApp", name: "x" } });
export const local = unixSocketFetch("/run/oauthbroker.sock");
"""
OPTIONS = {
    "compilerOptions": {
        "module": "nodenext", "target": "es2022", "strict": True, "outDir": "out", "rootDir": ".",
        "types": ["node"], "typeRoots": [str(HOME / "node_modules" / "@types")],
    },
    "files": ["user.ts"],
}  # fmt: skip


def checked(work: Path) -> Path:
    """Pack twice, install in an empty folder, import and compile; return the package. Raises RuntimeError."""
    first, second = (packed(work / f"npm-{number}") for number in (1, 2))
    if digest(first) != digest(second):
        raise RuntimeError("not reproducible: the TypeScript package")
    if wrong := sorted(contents(first) ^ expected()):
        raise RuntimeError(f"the TypeScript package does not hold what it should: {', '.join(wrong)}")
    used(first, work / "npm-user")
    return first


def packed(work: Path) -> Path:
    """Compile and pack a copy of the client: nothing that lies around gets in."""
    source = work / "client"
    shutil.copytree(HOME, source, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    (source / "node_modules").symlink_to(HOME / "node_modules")
    shutil.copy(ROOT / "LICENSE", source)
    ran("npm", "pack", "--pack-destination", work, cwd=source, env=_environment(work))
    [package] = work.glob("*.tgz")
    return package


def contents(package: Path) -> set[str]:
    with tarfile.open(package) as archive:
        return {name.removeprefix("package/") for name in archive.getnames()}


def expected() -> set[str]:
    """Return the files of the package: the compiled modules with their types, and three pages."""
    names = [path.stem for path in (HOME / "src").glob("*.ts")]
    modules = {f"dist/{name}{end}" for name in names for end in (".js", ".d.ts")}
    return modules | {"package.json", "README.md", "LICENSE"}


def used(package: Path, folder: Path) -> None:
    """Install the package in an empty folder, import both modules, and compile a program that uses its types."""
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}', "utf-8")
    ran("npm", "install", "--offline", "--no-audit", "--no-fund", package, cwd=folder, env=_environment(folder))
    (folder / "user.ts").write_text(USER, "utf-8")
    (folder / "tsconfig.json").write_text(json.dumps(OPTIONS), "utf-8")
    ran("node", HOME / "node_modules" / "typescript" / "bin" / "tsc", "-p", folder, cwd=folder)
    said = ran("node", "-e", "import('./out/user.js').then((m) => console.log(Object.keys(m).join()))", cwd=folder)
    if said.strip() != "ask,local":
        raise RuntimeError(f"the TypeScript package cannot be imported: {said[:200]}")


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables of npm: its cache lies in this folder."""
    return {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
