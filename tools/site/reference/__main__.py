"""Write the reference into a folder: `python -m tools.site.reference FOLDER`."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from oauthbroker.config.bundle.schema import FILE_NAME, bundle_schema
from oauthbroker.web.api.openapi import document
from tools.site.reference import command_line, configuration, http_api, provider_pages, python_api, signals, typescript
from tools.site.reference.short_pages import short_pages

PARTS = (command_line, configuration, python_api, http_api, provider_pages, signals, typescript)


def pages() -> dict[str, str]:
    """Return every page of the reference, whole, by its path."""
    return {path: text for part in PARTS for path, text in part.pages().items()}


def files() -> dict[str, str]:
    """Return what programs read: the JSON Schema of the configuration, and the OpenAPI document."""
    documents = {f"configuration/{FILE_NAME}": bundle_schema(), "openapi.json": document()}
    return {path: json.dumps(each, indent=1, ensure_ascii=False) + "\n" for path, each in documents.items()}


def write(into: Path) -> None:
    """Write the reference into a folder of its own."""
    shutil.rmtree(into, ignore_errors=True)
    for path, text in (short_pages(pages()) | files()).items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the reference of the site. What the folder held is removed.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
