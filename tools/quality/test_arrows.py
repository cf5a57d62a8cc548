"""The import contract of the package: arrows point down, and time, chance, network and environment have one place each.

tools/quality/architecture.py lists the folders from the lowest to the highest. Imports inside functions, under TYPE_CHECKING and by
`importlib` count like any other. Every rule is also shown to be alive: a wrong arrow planted on a small tree is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.kit.plugins_installed import SAMPLE
from tools.quality.architecture import FOLDERS, PACKAGE, Imports, folder_of, module_name, modules, names_used, nearest

ORDER = tuple(FOLDERS)
LATER = {"mcp", "tools", "gateway", "flowtools", "integrations"}  # they import the public face, and the broker none
PUBLIC = {"oauthbroker", "oauthbroker.plugins", "oauthbroker.client", "oauthbroker.capability"}
FACES = PUBLIC | {"oauthbroker.testing"}  # what packages of other programs import, with their tests
BESIDE = {  # files that join two plug-ins by public names, and a contract for the tests of packages
    ("oauthbroker.flowtools.as_tools", "oauthbroker.tools"),
    ("oauthbroker.integrations.mcp_servers", "oauthbroker.mcp"),
    ("oauthbroker.integrations.langgraph_mcp", "oauthbroker.mcp"),
    ("oauthbroker.testing.flow_adapter_contract", "oauthbroker.flowtools.running.ports"),
}
# What the edges reach only through the services that stand on it.
HIDDEN = {"protocol", "repository", "refresh"}
MAY_REACH_HIDDEN = {"refresh", "revocation", "authorization", "events", "tokens", "access", "wiring"}
MAY_REACH_HIDDEN |= {"grants", "plugin_services", "diagnostics", "admin"}
MAY_REACH_HIDDEN |= {*HIDDEN, "key_services"}  # Vault is asked over our own transport
MAY_STORE = {"repository", "wiring", "cli", "store", "key_services"}  # cli: init and keys make and unlock a store
STORE_KNOWS = {"core", "store"}
MAY_TESTING = {"cli", "testing"}  # cli: the demo's provider
FLOWS = {
    f"oauthbroker.authorization.{name}"
    for name in ("connect", "callback", "device", "login", "opening", "pending_codes", "polling", "sweep")
}

# A name and the only files (or folders) that may use it. `testing` plays the outside world and is exempt.
ONLY = {
    # The client is for other processes: it asks a broker, never a provider, and a tool's process gets its token there.
    "httpx2": {
        "protocol/network/pool.py",
        "protocol/network/tls_contexts.py",
        "protocol/network/transport.py",
        "client/async_transport.py",
        "client/sync_transport.py",
        "client/forwarding_clients.py",
        "capability.py",  # the types of its clients
        "injection/http_clients.py",
        "injection/http_libraries.py",
        "injection/bounded_answers.py",
        "integrations/mcp_servers.py",
        "mcp/client_transport.py",
        "mcp/rpc_messages.py",
        "mcp/upstream_sessions.py",
        "mcp/httpx_transport.py",
        "mcp/server.py",
        "flowtools/running/requests.py",  # the exceptions of the injecting client
    },
    "nats": {"events/forwarding/jetstream.py"},
    "smtplib": {"flowtools/running/mail.py"},
    "time": {"core/clock.py"},
    "random": {"core/clock.py"},
    "secrets": {"core/clock.py"},
    "uuid": {"core/clock.py"},
    "os.urandom": {"core/clock.py", "store"},
    "os.environ": {"config", "wiring", "cli", "client/address.py"},
    "os.getenv": {"config", "wiring", "cli", "client/address.py"},
    "datetime.now": {"core/clock.py"},
    "datetime.utcnow": {"core/clock.py"},
    "datetime.today": {"core/clock.py"},
    "date.today": {"core/clock.py"},
    "httpx": {"mcp/httpx_transport.py"},  # makes a client for an SDK that takes no other
    "requests": set[str](),
    "pickle": set[str](),
}


def wrong_arrows(package: Path) -> list[str]:
    """Every broken rule below `package`, one line each; empty when the contract holds."""
    files = modules(package)
    found: list[str] = []
    imports: Imports = {}
    for module, path in files.items():
        used = set(names_used(path, module, ONLY))
        imports[module] = {target for name in used if (target := nearest(name, files)) and target != module}
        found += [
            f"{module} imports {target}: {why}" for target in sorted(imports[module]) if (why := wrong(module, target))
        ]
        place = path.relative_to(package).as_posix()
        found += [f"{module} uses {name}: {why}" for name, why in forbidden(used, place)]
        if folder_of(module) not in {*FOLDERS, *LATER}:
            found.append(
                f"{module} has no place: put it into a folder of tools/quality/architecture.py, or add one there"
            )
    return found + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(imports)]


def wrong(module: str, target: str) -> str | None:
    """Why this one arrow is wrong, or None."""
    here, there = folder_of(module), folder_of(target)
    if (module, target) in BESIDE:
        return None
    if here in LATER:
        return None if target in PUBLIC or there == here else "plug-ins beside the broker import its public faces only"
    if there in LATER:
        return "the broker imports none of the plug-ins beside it"
    if here not in FOLDERS or there not in FOLDERS:
        return None  # reported once, as a module without a place
    if there == "testing" and here not in MAY_TESTING:
        return "only the demo uses the test kit"
    if here == "testing":
        return None
    if there == "store" and here not in MAY_STORE:
        return "only the repository and the wiring know the store"
    if here == "store" and there not in STORE_KNOWS:
        return "the store knows core and itself"
    if there in HIDDEN and here not in MAY_REACH_HIDDEN and ORDER.index(here) > ORDER.index("services"):
        return "edges go through the services"
    if {module, target} <= FLOWS:
        return "flows do not know each other; what two share is finish, and exchange on it"
    if ORDER.index(there) > ORDER.index(here):
        return f"{here} stands below {there}"
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


def test_every_arrow_of_the_package_points_down():
    """Design section 2. A line here names the file, the forbidden import or use, and the rule."""
    assert [] == wrong_arrows(PACKAGE)


PLANTED = {
    "core imports the model": ("core/errors.py", "from oauthbroker.model.apps import OAuthApp"),
    "protocol imports the repository": ("protocol/token_endpoint.py", "from oauthbroker.repository import repository"),
    "a lazy import upwards": (
        "repository/repository.py",
        "def f():\n    from oauthbroker.tokens.manager import Manager",
    ),
    "a type-only import upwards": (
        "model/scope_ceiling.py",
        "if TYPE_CHECKING:\n    import oauthbroker.tokens.manager",
    ),
    "an import by its string": (
        "model/scope_ceiling.py",
        "import importlib\nimportlib.import_module('oauthbroker.tokens.manager')",
    ),
    "a relative import upwards": ("protocol/token_endpoint.py", "from ..tokens.manager import Manager"),
    "the store learns an OAuth word": ("store/file/file_store.py", "from oauthbroker.model.apps import OAuthApp"),
    "the store imports the repository": ("store/file/file_store.py", "import oauthbroker.repository.repository"),
    "a flow opens the store": ("authorization/connect.py", "from oauthbroker.store.format.port import Key"),
    "a flow imports a flow": ("authorization/connect.py", "from oauthbroker.authorization.callback import claim"),
    "what flows share imports a flow": (
        "authorization/finish.py",
        "from oauthbroker.authorization import connect",
    ),
    "a page goes round the services": (
        "web/html/consent_html.py",
        "from oauthbroker.refresh.transaction import Refresh",
    ),
    "a command goes round the services": (
        "cli/grants/commands.py",
        "from oauthbroker.repository.repository import Repository",
    ),
    "a plug-in beside the broker looks inside": ("mcp/server.py", "from oauthbroker.tokens.manager import Manager"),
    "a plug-in beside the broker looks behind the client": (
        "mcp/server.py",
        "from oauthbroker.client.retries import Wire",
    ),
    "a plug-in beside the broker looks behind the face for plug-ins": (
        "tools/calling/registry.py",
        "from oauthbroker.plugins.discovery import installed",
    ),
    "the broker imports the public face for plug-ins": ("web/app.py", "from oauthbroker.plugins import Plugin"),
    "a plug-in beside the broker imports another": ("gateway/chat.py", "from oauthbroker.mcp import server"),
    "the discovery of plug-ins imports a plug-in": ("plugins/discovery.py", "from oauthbroker.mcp import server"),
    "the discovery of plug-ins imports a plug-in by its string": (
        "plugins/discovery.py",
        "import importlib\nimportlib.import_module('oauthbroker.tools.calling.registry')",
    ),
    "the declaration of plug-ins imports the broker": (
        "plugins/declaration.py",
        "from oauthbroker.broker import Broker",
    ),
    "the capability imports its subjects": (
        "capability.py",
        "from oauthbroker.tokens.context import OAuthContext",
    ),
    "the broker imports a plug-in beside it": ("wiring/opening.py", "from oauthbroker.mcp import server"),
    "the API reaches for the broker": ("web/api/router.py", "from oauthbroker.broker import Broker"),
    "a page uses the test kit": ("web/html/consent_html.py", "from oauthbroker.testing import FakeProvider"),
    "the manager imports an edge": ("tokens/manager.py", "from oauthbroker.config import load"),
    "two files of one folder import each other": ("model/subject.py", "import oauthbroker.model.scope_ceiling"),
    "a module without a folder": ("helpers.py", "x = 1"),
    "a folder without a place": ("helpers/text.py", "x = 1"),
    "a second network listener": ("authorization/connect.py", "import httpx2"),
    "the other http library": ("protocol/network/transport.py", "import httpx"),
    "a clock of its own": ("tokens/manager.py", "import time"),
    "a wall clock through datetime": ("records/grant.py", "import datetime\nx = datetime.datetime.now()"),
    "a wall clock by its short name": ("records/grant.py", "from datetime import datetime\nx = datetime.now(UTC)"),
    "chance of its own": ("authorization/connect.py", "from secrets import token_urlsafe"),
    "system chance outside the store's sealing": ("tokens/manager.py", "import os\nx = os.urandom(8)"),
    "the environment in the manager": ("tokens/manager.py", "import os\nx = os.environ['X']"),
    "the environment by import": ("web/app.py", "from os import environ"),
}

SOUND = {
    "__init__.py": "from oauthbroker.wiring.opening import open_broker",
    "core/errors.py": "",
    "core/clock.py": "import time, random, secrets\nfrom datetime import datetime\nx = datetime.now(UTC)",
    "model/apps.py": "from oauthbroker.core.errors import Code",
    "model/scope_ceiling.py": "from oauthbroker.model.subject import x",
    "model/subject.py": "",
    "records/grant.py": "import datetime",
    "protocol/__init__.py": "",
    "protocol/network/transport.py": "import httpx2",
    "protocol/token_endpoint.py": "from oauthbroker.protocol import transport\nfrom ..model.apps import OAuthApp",
    "store/format/port.py": "from oauthbroker.core.errors import Code",
    "store/file/file_store.py": "from oauthbroker.store.format.port import Key\nimport os\nx = os.open",
    "store/format/seal.py": "import os\nx = os.urandom(32)",
    "repository/repository.py": "from oauthbroker.store.format.port import Store\nfrom oauthbroker.records.grant import y",
    "refresh/transaction.py": "from oauthbroker.repository.repository import Repository",
    "authorization/__init__.py": "",
    "authorization/finish.py": "from oauthbroker.repository.repository import Repository",
    "authorization/connect.py": "from oauthbroker.authorization import finish\nfrom oauthbroker.protocol import token",
    "authorization/callback.py": "from oauthbroker.authorization.finish import done",
    "tokens/manager.py": "from oauthbroker.authorization.connect import x\nx = self.time.random + turn.secrets.time",
    "web/__init__.py": "",
    "web/app.py": "from oauthbroker.tokens.manager import Manager",
    "web/html/consent_html.py": "",
    "mcp/server.py": "import oauthbroker\nfrom oauthbroker.client import AsyncBroker",
    "plugins/__init__.py": "from oauthbroker.wiring.opening import open_broker",
    "tools/calling/registry.py": "from oauthbroker.plugins import Plugin\nfrom oauthbroker.capability import OAuthCapability",
    "gateway/chat.py": "from oauthbroker.gateway import limits",
    "gateway/__init__.py": "",
    "gateway/limits.py": "",
    "plugins/declaration.py": "from oauthbroker.model.apps import x",
    "plugins/discovery.py": "from oauthbroker.plugins.declaration import Folder",
    "capability.py": "from oauthbroker.core.errors import Code",
    "client/__init__.py": "",
    "client/async_transport.py": "import httpx2",
    "client/retries.py": "from oauthbroker.core.errors import Code",
    "config/values/value_sources.py": "import os\nx = os.environ",
    "wiring/opening.py": "from oauthbroker.store.file import file_store\nfrom oauthbroker.authorization import connect",
    "cli/__init__.py": "",
    "cli/grants/commands.py": "from oauthbroker.wiring import broker",
    "cli/demo.py": "from oauthbroker.testing import provider",
    "testing/__init__.py": "",
    "testing/provider.py": "import httpx2, time, random\nfrom oauthbroker.protocol import token",
}


def build(root: Path, files: dict[str, str]) -> Path:
    package = root / "oauthbroker"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, "utf-8")
    return package


def test_a_sound_small_package_is_accepted(tmp_path):
    assert [] == wrong_arrows(build(tmp_path, SOUND))


def test_missing_folders_are_no_fault(tmp_path):
    assert [] == wrong_arrows(
        build(tmp_path, {"core/errors.py": "", "tokens/manager.py": "import oauthbroker.core.errors"})
    )


@pytest.mark.parametrize(("file", "text"), PLANTED.values(), ids=PLANTED)
def test_a_planted_wrong_arrow_is_found(tmp_path, file, text):
    """The sound package plus one wrong line: exactly the file that holds it is named."""
    package = build(tmp_path, SOUND | {file: f"{SOUND.get(file, '')}\n{text}"})
    found = wrong_arrows(package)
    assert found
    assert all(module_name(package / file, package) in line for line in found), found


LISTED = {"oauthbroker", "oauthbroker.plugins"}  # their names are counted; the others are whole modules


def beyond_the_face(folder: Path) -> list[str]:
    """Return what a package of another program imports of the broker beside its public names, one line each."""
    names = {face: {f"{face}.{name}" for name in import_module(face).__all__} for face in LISTED}
    public = FACES.union(*names.values())
    return [
        f"{path.relative_to(folder)} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in names_used(path, path.stem)
        if name.partition(".")[0] == "oauthbroker"
        and name not in public
        and name.rpartition(".")[0] not in FACES - LISTED
    ]


def test_the_sample_plugin_imports_the_public_face_only():
    """It uses every name of it, so the face is enough for a plug-in."""
    assert [] == beyond_the_face(SAMPLE)


@pytest.mark.parametrize(
    "text",
    [
        "from oauthbroker.wiring import open_broker",
        "import oauthbroker.plugins.declaration",
        "def f():\n    from oauthbroker import broker",
        "from oauthbroker.client.retries import Wire",
        "from oauthbroker import Plugin",  # a name of the other face
        "from oauthbroker.plugins import open_broker",
        "from oauthbroker.plugins.discovery import installed",
        "import importlib\nimportlib.import_module('oauthbroker.store.format.port')",
    ],
)
def test_a_plugin_that_looks_behind_the_face_is_found(tmp_path, text):
    tmp_path.joinpath("plugin.py").write_text(
        f"from oauthbroker.plugins import Plugin\nfrom oauthbroker.client import OAuth\n{text}"
    )
    (found,) = beyond_the_face(tmp_path)
    assert found.startswith("plugin.py imports oauthbroker.")
