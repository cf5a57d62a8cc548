"""The import contract of the house: arrows point down, and time, chance, network and environment have one door each.

Read by `ast`, so that imports inside functions, under TYPE_CHECKING and by `importlib` count like any other. Every
rule is also shown to be alive: a wrong arrow planted on a small tree must be found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2] / "oauthbroker"
Imports = dict[str, set[str]]

# Import your own floor (without cycles) or a lower one. What is not in the table has no place yet, and that is an error.
FLOORS = {
    "words": {
        "scrubber",
        "secret",
        "codes",
        "meanings",
        "errors",
        "clock",
        "metrics",
        "lifecycle",
        "tracing",
        "bridge",
    },
    "nouns": {
        "apps",
        "client_key",
        "turn",
        "records",
        "results",
        "strict_json",
        "subject",
        "scope",
        "binding",
        "audit",
        "providers",
        "settings",
        "reach",
        "turn_token",
        "titles",
        "token_request",
        "grant_summary",
        "grant_health",
    },
    "protocol": {"protocol"},
    "store": {"store"},
    "repository": {
        "repository",
        "held",
        "quota",
        "circuit",
        "keeper",
        "renewing",
        "single_flight",
        "kin",
        "shelf",
        "snapshot",
        "tombstones",
        "markers",
    },
    "flows": {"flows"},
    "manager": {
        "manager",
        "token_call",
        "decision",
        "context",
        "pending",
        "queues",
        "resume",
        "revocations",
        "erasure",
        "upkeep",
        "confirming",
        "consent",
        "retrying",
        "inventory",
        "grant_pages",
        "checkup",
        "desk",
        "importing",
        "import_lines",
        "in_use",
        "gauges",
        "turns",
        "known_tokens",
        "api_keys",
        "queue_index",
    },
    "rooms": {"tools", "gateway", "flowgraph", "mcp"},
    "edges": {
        "web",
        "cli",
        "serving",
        "config",
        "wiring",
        "metrics_folder",
        "broker",
        "reload",
        "client",
        "__init__",
        "__main__",
    },
    "testing": {"testing"},
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
ORDER = list(FLOORS)
HIDDEN = {"repository", "flows", "protocol"}  # what rooms and edges reach only through the manager
MAY_REACH_HIDDEN = {"wiring"}
MAY_STORE = {
    "repository",
    "held",
    "shelf",
    "tombstones",
    "markers",
    "wiring",
    "cli",
    "store",
}  # cli: init and keys make and unlock a store
MAY_TESTING = {"cli", "testing"}  # cli: the demo's provider
SHARED_BY_FLOWS = {"oauthbroker.flows.finish", "oauthbroker.flows.exchange"}

# A name and the only files (or folders) that may use it. `testing` plays the outside world and is exempt.
ONLY = {
    # The client is for other processes: it asks a broker, never a provider, and a tool's process gets its token there.
    "httpx2": {"protocol/transport.py", "client/wire.py"},
    "time": {"clock.py"},
    "random": {"clock.py"},
    "secrets": {"clock.py"},
    "uuid": {"clock.py"},
    "os.urandom": {"clock.py", "store"},
    "os.environ": {"config", "config.py", "wiring", "wiring.py", "cli", "client/environment.py"},
    "os.getenv": {"config", "config.py", "wiring", "wiring.py", "cli", "client/environment.py"},
    "datetime.now": {"clock.py"},
    "datetime.utcnow": {"clock.py"},
    "datetime.today": {"clock.py"},
    "date.today": {"clock.py"},
    "httpx": set[str](),
    "requests": set[str](),
    "pickle": set[str](),
}


def module_name(path: Path, house: Path) -> str:
    parts = [house.name, *path.relative_to(house).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_used(path: Path, module: str) -> Iterator[str]:
    """Every dotted name that a file imports, and every `a.b` of ONLY that it spells out."""
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
                f"{owner}.{attr}" in ONLY
            ):
                yield f"{owner}.{attr}"


def wrong_arrows(house: Path) -> list[str]:
    """Every broken rule below `house`, one line each; empty when the contract holds."""
    files = {module_name(path, house): path for path in sorted(house.rglob("*.py"))}
    found: list[str] = []
    imports: Imports = {}
    for module, path in files.items():
        used = set(names_used(path, module))
        imports[module] = {target for name in used if (target := nearest(name, files)) and target != module}
        found += [
            f"{module} imports {target}: {why}" for target in sorted(imports[module]) if (why := wrong(module, target))
        ]
        place = path.relative_to(house).as_posix()
        found += [f"{module} uses {name}: {why}" for name, why in forbidden(used, place)]
        if room_of(module) not in FLOOR_OF:
            found.append(f"{module} has no floor: give it one in FLOORS, and in CONTRIBUTING.md")
    return found + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(imports)]


def nearest(name: str, files: dict[str, Path]) -> str | None:
    """The module of ours that an imported name lives in."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name or None


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def wrong(module: str, target: str) -> str | None:
    """Why this one arrow is wrong, or None."""
    here, there = room_of(module), room_of(target)
    floor, below = FLOOR_OF.get(here, "edges"), FLOOR_OF.get(there, "edges")
    if there == "testing" and here not in MAY_TESTING:
        return "only the demo uses the test kit"
    if here == "testing" or there == "testing":
        return None
    if there == "store" and here not in MAY_STORE:
        return "only the repository and the wiring know the store"
    if here == "store" and below not in {"words", "store"}:
        return "the store knows words and itself"
    if floor in {"rooms", "edges"} and below in HIDDEN and here not in MAY_REACH_HIDDEN:
        return "edges and rooms go through the manager"
    if here == there == "flows" and target not in SHARED_BY_FLOWS and module != "oauthbroker.flows":
        return "flows do not know each other; what two share is finish, and exchange on it"
    if ORDER.index(below) > ORDER.index(floor):
        return f"{floor} stands below {below}"
    return None


def forbidden(used: set[str], place: str) -> Iterator[tuple[str, str]]:
    """The names of ONLY that this file uses without being named there."""
    if place.startswith("testing/"):
        return
    for name, where in ONLY.items():
        if place in where or place.partition("/")[0] in where:
            continue
        if any(each == name or each.startswith(f"{name}.") for each in used):
            yield name, f"only in {', '.join(sorted(where)) or 'no file of ours'}"


def cycles(imports: Imports) -> Iterator[list[str]]:
    """One path for every import cycle that a walk meets."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> Iterator[list[str]]:
        if module in path:
            yield [*path[path.index(module) :], module]
        elif module not in done:
            for target in sorted(imports[module]):
                yield from walk(target, [*path, module])
            done.add(module)

    for module in sorted(imports):
        yield from walk(module, [])


def test_every_arrow_of_the_house_points_down():
    """Design section 2. A line here names the file, what it must not import or use, and the rule."""
    assert [] == wrong_arrows(HOUSE)


PLANTED = {
    "a word imports a noun": ("errors.py", "from oauthbroker.apps import OAuthApp"),
    "protocol imports the repository": ("protocol/token.py", "from oauthbroker import repository"),
    "a lazy import upwards": ("repository.py", "def f():\n    from oauthbroker.manager import Manager"),
    "a type-only import upwards": ("scope.py", "if TYPE_CHECKING:\n    import oauthbroker.manager"),
    "an import by its string": ("scope.py", "import importlib\nimportlib.import_module('oauthbroker.manager')"),
    "a relative import upwards": ("protocol/token.py", "from ..manager import Manager"),
    "the store learns an OAuth word": ("store/file.py", "from oauthbroker.apps import OAuthApp"),
    "the store imports the repository": ("store/file.py", "import oauthbroker.repository"),
    "a flow opens the store": ("flows/connect.py", "from oauthbroker.store.port import Key"),
    "a flow imports a flow": ("flows/connect.py", "from oauthbroker.flows.callback import claim"),
    "what flows share imports a flow": ("flows/finish.py", "from oauthbroker.flows import connect"),
    "a page goes round the manager": ("web/pages.py", "from oauthbroker.flows.connect import open_session"),
    "a command goes round the manager": ("cli/grants.py", "from oauthbroker.repository import Repository"),
    "a room goes round the manager": ("mcp/server.py", "from oauthbroker.protocol.token import TokenSet"),
    "a page uses the test kit": ("web/pages.py", "from oauthbroker.testing import FakeProvider"),
    "the manager imports an edge": ("manager.py", "from oauthbroker.config import load"),
    "two nouns import each other": ("subject.py", "import oauthbroker.scope"),
    "a module without a floor": ("helpers.py", "x = 1"),
    "a second network door": ("flows/connect.py", "import httpx2"),
    "the other http library": ("protocol/transport.py", "import httpx"),
    "a clock of its own": ("manager.py", "import time"),
    "a wall clock through datetime": ("records.py", "import datetime\nx = datetime.datetime.now()"),
    "a wall clock by its short name": ("records.py", "from datetime import datetime\nx = datetime.now(UTC)"),
    "chance of its own": ("flows/connect.py", "from secrets import token_urlsafe"),
    "system chance outside the store's sealing": ("manager.py", "import os\nx = os.urandom(8)"),
    "the environment in the manager": ("manager.py", "import os\nx = os.environ['X']"),
    "the environment by import": ("web/app.py", "from os import environ"),
}

SOUND = {
    "__init__.py": "from oauthbroker.wiring import open_broker",
    "errors.py": "",
    "clock.py": "import time, random, secrets\nfrom datetime import datetime\nx = datetime.now(UTC)",
    "apps.py": "from oauthbroker.errors import Code",
    "scope.py": "from oauthbroker.subject import x",
    "subject.py": "",
    "records.py": "import datetime",
    "protocol/__init__.py": "",
    "protocol/transport.py": "import httpx2",
    "protocol/token.py": "from oauthbroker.protocol import transport\nfrom ..apps import OAuthApp",
    "store/__init__.py": "from oauthbroker.store.file import FileStore",
    "store/port.py": "from oauthbroker.errors import Code",
    "store/file.py": "from oauthbroker.store.port import Key\nimport os\nx = os.open",
    "store/seal.py": "import os\nx = os.urandom(32)",
    "repository.py": "from oauthbroker.store.port import Store\nfrom oauthbroker.records import y",
    "flows/__init__.py": "",
    "flows/finish.py": "from oauthbroker.repository import Repository",
    "flows/connect.py": "from oauthbroker.flows import finish\nfrom oauthbroker.protocol import token",
    "flows/callback.py": "from oauthbroker.flows.finish import done",
    "manager.py": "from oauthbroker.flows.connect import open_session\nx = self.time.random + turn.secrets.time",
    "web/__init__.py": "",
    "web/app.py": "from oauthbroker.manager import Manager",
    "web/pages.py": "",
    "mcp/server.py": "from oauthbroker.manager import Manager",
    "config.py": "import os\nx = os.environ",
    "wiring.py": "from oauthbroker.store import FileStore\nfrom oauthbroker.flows import connect",
    "cli/__init__.py": "",
    "cli/grants.py": "from oauthbroker.wiring import open_broker",
    "cli/demo.py": "from oauthbroker.testing import provider",
    "testing/__init__.py": "",
    "testing/provider.py": "import httpx2, time, random\nfrom oauthbroker.protocol import token",
}


def build(root: Path, files: dict[str, str]) -> Path:
    house = root / "oauthbroker"
    for name, text in files.items():
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text(text, "utf-8")
    return house


def test_a_sound_small_house_is_accepted(tmp_path):
    assert [] == wrong_arrows(build(tmp_path, SOUND))


def test_missing_rooms_are_no_fault(tmp_path):
    assert [] == wrong_arrows(build(tmp_path, {"errors.py": "", "manager.py": "import oauthbroker.errors"}))


@pytest.mark.parametrize(("file", "text"), PLANTED.values(), ids=PLANTED)
def test_a_planted_wrong_arrow_is_found(tmp_path, file, text):
    """The sound house plus one wrong line: exactly the file that holds it is named."""
    house = build(tmp_path, SOUND | {file: f"{SOUND.get(file, '')}\n{text}"})
    found = wrong_arrows(house)
    assert found
    assert all(module_name(house / file, house) in line for line in found), found
