"""The folders of the package from the lowest to the highest, the imports between them, and their drawing.

The import contract (tools/quality/test_arrows.py) and the drawing in docs/README.md (`make architecture`) both read this file.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "oauthbroker"
PAGE = ROOT / "docs" / "README.md"
BEGIN, END = "<!-- folders: written by `make architecture` -->\n", "<!-- end of folders -->\n"
Imports = dict[str, set[str]]

# Folders, and modules of the package's root. Each imports itself (without cycles of files) and those before it in the table.
FOLDERS = {
    "core": "errors, secrets, clock, strict JSON, lifecycle",
    "observability": "metrics, spans, logs, scrubber",
    "model": "apps, settings, turn, subject, scope, request, results",
    "capability": "the protocol of `ctx.oauth` that tools and plug-ins take",
    "providers": "provider presets as data, and their quirks",
    "records": "the stored records: grant, auth session, event, API key, turn",
    "audit": "the audit log: written, read, verified",
    "plugins": "plug-ins: their declaration, and the discovery of the installed ones",
    "protocol": "OAuth messages, one pair of functions each; `transport` is the only way to the network",
    "store": "sealed bytes: port, seal, keys, files, memory; it knows no word of OAuth",
    "key_services": "keys in Vault, AWS KMS or another package's provider, which open a keyring",
    "repository": "typed records over the store",
    "refresh": "the refresh transaction, its write-back, circuits, background refresh",
    "revocation": "ending grants, one or many, and telling the provider",
    "authorization": "from a missing token to a grant: auth sessions, callback, code exchange, device codes, sign-in",
    "events": "durable queues, the relay, waiting for an outcome",
    "injection": "requests to a provider's API that carry a token which their caller never holds",
    "tokens": "the token call: manager, decision, `ctx.oauth`",
    "access": "turns, turn tokens and API keys: who may call from another process",
    "grants": "grants as operators and users handle them: list, import, revoke, erase, connections",
    "plugin_services": "what a running broker offers to plug-ins: durable state, pinned texts, the public web",
    "diagnostics": "whether a broker is well: health, the findings of `doctor`, forecast, probes",
    "admin": "the views and actions of operators on the pages of `/admin`, and the gauges",
    "services": "the services that a broker offers, in process and over HTTP, as one object",
    "config": "resources from YAML, and reloading them",
    "client": "the client for other processes",
    "web": "pages and the HTTP API",
    "broker": "the `Broker` object that embedders hold",
    "serving": "listeners and HTTP/1.1 connections",
    "wiring": "builds all parts, starts and stops them",
    "personal": "one person's connections on one machine: `oauthbroker.local`, `login`, `status`, `logout`",
    "__init__": "the public names: `oauthbroker` for programs that run agents, `oauthbroker.plugins` for plug-ins",
    "tools": "a plug-in: the tool runtime, with tools, agents and turns",
    "gateway": "a plug-in: it checks the actions that a model proposes, before they run",
    "flowtools": "a plug-in: tools written as data, checked and assessed before anything is deployed",
    "mcp": "a plug-in: tokens for MCP clients and servers",
    "integrations": "a plug-in: runs of agent frameworks pause for consent and resume",
    "workers": "the processes of `oauthbroker serve`: workers, and their parent",
    "testing": "a scripted provider, browser, clock and pytest plugin, for your tests too",
    "cli": "the commands",
    "__main__": "`python -m oauthbroker`",
}


def module_name(path: Path, package: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_used(path: Path, module: str, spelled: Container[str] = ()) -> Iterator[str]:
    """Yield every dotted name that a file imports, and every `a.b` of `spelled` that it writes out."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([source] if source else [])])
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield target
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=attr) if (
                f"{owner}.{attr}" in spelled
            ):
                yield f"{owner}.{attr}"


def modules(package: Path) -> dict[str, Path]:
    """Return every module below `package` with its file."""
    return {module_name(path, package): path for path in sorted(package.rglob("*.py"))}


def nearest(name: str, files: Container[str]) -> str | None:
    """Return the module of ours that holds an imported name."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name or None


FACE_OF_PLUGINS = "oauthbroker.plugins"  # the package's own module; its files are the folder `plugins`, far below


def folder_of(module: str) -> str:
    if module == FACE_OF_PLUGINS:
        return "__init__"
    return module.split(".")[1] if "." in module else "__init__"


def folder_imports(package: Path) -> Imports:
    """Return the folders that each folder imports."""
    files = modules(package)
    found: Imports = {folder_of(module): set() for module in files}
    for module, path in files.items():
        targets = {nearest(name, files) for name in names_used(path, module)} - {None}
        found[folder_of(module)] |= {folder_of(str(target)) for target in targets} - {folder_of(module)}
    return found


def drawn(imports: Imports) -> Imports:
    """Leave out each arrow that a longer way implies."""
    beyond: Imports = {}

    def reached(folder: str) -> set[str]:
        if folder not in beyond:
            beyond[folder] = set().union(*(imports[each] | reached(each) for each in imports[folder]))
        return beyond[folder]

    return {folder: {each for each in below if not any(each in imports[way] | reached(way) for way in below)} for folder, below in imports.items()}  # fmt: skip


def shown(folder: str) -> str:
    return {"__init__": "oauthbroker", "__main__": "python -m oauthbroker"}.get(folder, folder)


def section(imports: Imports) -> str:
    """Return the drawing and the table of the folders, the highest folder first."""
    order = [folder for folder in reversed(FOLDERS) if folder in imports]
    arrows = drawn(imports)
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {folder}["{shown(folder)}"]' for folder in order]
    lines += [f"    {folder} --> {each}" for folder in order for each in order if each in arrows[folder]]
    lines += ["```", "", "| folder | purpose | imports |", "|---|---|---|"]
    for folder in order:
        below = ", ".join(shown(each) for each in order if each in imports[folder])
        lines.append(f"| `{shown(folder)}` | {FOLDERS[folder]} | {below or 'nothing'} |")
    return "\n".join(lines) + "\n"


def page(text: str, imports: Imports) -> str:
    """Return the page with its section on folders written anew."""
    if text and (text.count(BEGIN), text.count(END)) != (1, 1):
        raise ValueError(f"the page has to have {BEGIN.strip()} and {END.strip()} once each")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}{section(imports)}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8"), folder_imports(PACKAGE)), "utf-8")
