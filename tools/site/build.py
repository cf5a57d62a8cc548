"""Build the documentation's site: `python -m tools.site.build` stages the pages, renders them, and makes the site whole
in its own folder, so that it works without a network and without a server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from oauthbroker.core.version import VERSION
from tools.site.stage import ROOT, stage

HERE = Path(__file__).parent
BUILD = ROOT / "build"
SITE = BUILD / "site"
REFERENCE = BUILD / "reference"  # `python -m tools.site.reference` makes it, in the environment of the product
PACKAGES = HERE / "node_modules"
SCRIPTS = {"mermaid.min.js": "mermaid/dist/mermaid.min.js", "iframe-worker.js": "iframe-worker/shim/index.js"}
ELSEWHERE = "https://unpkg.com/iframe-worker/shim"  # where the theme would load its worker from
LEAD = '<!doctype html><meta charset="utf-8"><title>oauthbroker</title><meta http-equiv="refresh" content="0; url={version}/index.html"><a href="{version}/index.html">oauthbroker {version}</a>\n'


def main(words: list[str]) -> int:
    """Build, or with the word `-serve` show the pages at a loopback address and build again what changes."""
    stage(BUILD / "pages", REFERENCE)
    for name, source in SCRIPTS.items():
        shutil.copyfile(PACKAGES / source, BUILD / "pages" / "assets" / name)
    config = BUILD / "site.yml"
    config.write_text((HERE / "site.yml").read_text("utf-8").replace("VERSION", VERSION), "utf-8")
    program = Path(sys.executable).with_name("zensical")
    if "-serve" in words:
        return subprocess.run([program, "serve", "-f", config], cwd=BUILD, check=False).returncode
    shutil.rmtree(SITE / VERSION, ignore_errors=True)  # another version keeps its folder
    built = subprocess.run([program, "build", "--strict", "-f", config], cwd=BUILD, check=False).returncode
    if built == 0:
        _make_whole(SITE / VERSION)
        (SITE / "index.html").write_text(LEAD.format(version=VERSION), "utf-8")
    return built


def _make_whole(site: Path) -> None:
    """Lead the pages to the scripts in their own folder."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        own = "../" * (len(page.relative_to(site).parts) - 1) + "assets/iframe-worker.js"
        page.write_text(text.replace(ELSEWHERE, own), "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
