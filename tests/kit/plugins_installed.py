"""Plug-ins for tests: the sample plug-in, and distributions written by a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SAMPLE = Path(__file__).parent / "sample_plugin"


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Put folders on this process's path, and forget the modules imported from them afterwards."""
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before
        starts = tuple(f"{folder}/" for folder in folders)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(starts):
                del sys.modules[name]


def distribution(folder: Path, name: str, plugins: Mapping[str, str], **modules: str) -> Path:
    """Write an installed package: its plug-ins (name to `module:object`) and its modules. Return the folder."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    points = "\n".join(f"{plugin} = {target}" for plugin, target in plugins.items())
    info.joinpath("entry_points.txt").write_text(f"[oauthbroker.plugins]\n{points}\n", "utf-8")
    for module, text in modules.items():
        folder.joinpath(f"{module}.py").write_text(text, "utf-8")
    return folder
