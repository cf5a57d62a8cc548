"""Resource kinds of plug-ins: read and checked with all others, and only where the Broker names the plug-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import Loaded, load, load_settings, resolve
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from tests.kit.plugin_package import install
from tests.kit.plugins_installed import SAMPLE, distribution, on_path
from tests.unit.config.bundles import (
    APP,
    BROKER,
    CANARY,
    HEAD,
    TOOL,
    edited,
    loaded_with_values,
    problems_in,
    unmarked,
    write,
)

PLUGINS = BROKER + "  plugins: [sample]\n"
NOTEBOOK = (
    HEAD
    + """kind: Notebook
metadata: {name: red}
spec:
  oauthAppRef: OAuthApp/acme
  mode: read
  pages: 3
  servers:
    home: {url: "https://home.example", token: {valueFrom: {env: HOME_TOKEN}}}
"""
)
NOTED = edited(TOOL, ("  entry: ./hammer.js\n", "  entry: ./hammer.js\n  notes: {notebook: Notebook/red}\n"))
MANUAL = HEAD + "kind: Manual\nmetadata: {name: m}\nspec: {pages: 3}\n"


@pytest.fixture(autouse=True)
def sample():
    with on_path(SAMPLE):
        yield


def named(*plugins: str) -> str:
    return BROKER + f"  plugins: [{', '.join(plugins)}]\n"


def test_a_named_plugins_resources_are_read_with_their_secrets(tmp_path: Path):
    loaded, bundle = loaded_with_values(write(tmp_path, broker=PLUGINS, app=APP, red=NOTEBOOK, tool=NOTED))
    assert ("sample",) == bundle.settings.plugins
    red, hammer = bundle.plugins["sample"].resources
    assert ("Notebook", "red", 3) == (red.kind, red.name, red.spec.pages)
    assert {("servers", "home", "token"): Secret("from-the-environment")} == red.secrets
    assert ("Tool", "hammer", "red") == (hammer.kind, hammer.name, hammer.spec.notes.notebook.name)
    assert {"Tool/hammer", "Tool/hammer:hit", "Tool/hammer:hold"} == set(bundle.tools)  # our part is read as ever
    assert {"ACME_SECRET", "HOME_TOKEN"} == loaded.env_names
    assert () == loaded.ignored + loaded.idle_refs


def test_a_plugin_that_is_installed_and_not_named_adds_nothing(tmp_path: Path):
    loaded = load(write(tmp_path, broker=BROKER, app=APP, red=NOTEBOOK, tool=NOTED))
    assert {} == loaded.plugins
    assert {"ACME_SECRET"} == loaded.env_names
    assert ["Notebook"] == [each.kind for each in loaded.ignored]
    assert ["spec.oauthAppRef"] == [each.path for each in loaded.idle_refs]


def test_a_short_command_reads_no_value_of_a_plugin(tmp_path: Path):
    loaded = load(write(tmp_path, broker=PLUGINS, app=APP, red=NOTEBOOK))
    assert {} == resolve(loaded, {}, {}, only=()).plugins


PROBLEMS = {
    "an unknown field": ("pages: 3", "@@pagse: 3", "unknown field", "the nearest known name is pages"),
    "a wrong type": ("pages: 3", "pages: @@'3'", "not a whole number", "write digits without quotes"),
    "a bound": ("pages: 3", "pages: @@101", "too large", "write at most 100"),
    "a word": ("mode: read", "mode: @@erase", "unknown value", "use 'read' or 'write'"),
    "an absent field below": ('home: {url: "https://home.example", token', "@@home: {token", "missing", "write it"),
    "an unknown field below a key": ("token: {", "@@tokken: {", "unknown field", "the nearest known name is token"),
    "the plug-in's own check": ('"https://home', '@@"http://home', "not an https address", "write https://..."),
    "a reference to nothing": ("OAuthApp/acme", "@@OAuthApp/acne", "no such OAuthApp in this bundle", "the nearest known one is OAuthApp/acme"),
    "a reference to another kind": ("OAuthApp/acme", "@@Tool/acme", "not a reference to an OAuthApp", "write OAuthApp/<name>"),
    "no reference": ("spec:\n  oauthAppRef: OAuthApp/acme\n", "@@spec:\n", "missing", "write OAuthApp/<name>"),
    "a reference to a resource of the plug-in": ("pages: 3", "nextPage: @@Notebook/rad", "no such Notebook in this bundle", "the nearest known one is Notebook/red"),
    "a plain secret": ("{valueFrom: {env: HOME_TOKEN}}", f"@@{CANARY}", "a secret as plain text", "write {valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}} or {valueFrom: {env: NAME}}"),
    "a wrapped plain secret": ("{valueFrom: {env: HOME_TOKEN}}", f"{{value: @@{CANARY}}}", "a secret in plain YAML", "write valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}, or allowPlainSecrets: dev in the Broker resource"),
    "an anchor": ("pages: 3", "pages: @@&a 3", "YAML anchors are not read", "remove the & name"),
}  # fmt: skip


@pytest.mark.parametrize("change", PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_one_problem_at_its_place(tmp_path: Path, change: tuple[str, str, str, str]):
    old, new, what, hint = change
    text, (line, column) = unmarked(edited(NOTEBOOK, (old, new)))
    (problem,) = problems_in(write(tmp_path, broker=PLUGINS, app=APP, red=text))
    assert (what, hint) == (problem.what, problem.hint)
    assert (str(tmp_path / "red.yaml"), line, column) == (problem.file, problem.line, problem.column)
    assert CANARY not in str(problem)


def test_all_errors_come_at_once(tmp_path: Path):
    red = edited(
        NOTEBOOK, ("pages: 3", "pages: 300"), ("OAuthApp/acme", "OAuthApp/acne"), ("https://home", "ftp://home")
    )
    tool = edited(NOTED, ("Notebook/red", "Notebook/rod"), ("[read, write]", "[read, writ]"))
    app = edited(APP, ("flow: authorizationCode", "flow: nothing"))
    found = problems_in(write(tmp_path, broker=named("sample", "absent"), app=app, red=red, tool=tool))
    assert {
        ("spec.plugins[1]", "no plug-in of this name is installed"),
        ("spec.flow", "unknown value"),
        ("spec.pages", "too large"),
        ("spec.oauthAppRef", "no such OAuthApp in this bundle"),
        ("spec.servers.?.url", "not an https address"),
        ("spec.notes.notebook", "no such Notebook in this bundle"),
        ("spec.auth.scopes[1]", "a scope that the OAuthApp does not have"),
    } <= {(each.path, each.what) for each in found}


def test_a_key_that_may_be_a_secret_is_not_repeated(tmp_path: Path):
    """A value in the place of a key: neither the shape nor the plug-in's own check prints it."""
    red = edited(
        NOTEBOOK,
        ("home:", f"{CANARY}:"),
        ("https://home", "http://home"),
        ("{valueFrom: {env: HOME_TOKEN}}", "{value: x}"),
    )
    found = problems_in(write(tmp_path, broker=PLUGINS, app=APP, red=red))
    assert ["spec.servers.?.url", "spec.servers.?.token.value"] == [each.path for each in found]
    assert CANARY not in str([str(each) for each in found])


def test_a_slip_of_a_plugins_field_in_a_tool_is_reported_and_its_own_fields_are_no_slips(tmp_path: Path):
    tool = edited(NOTED, ("notes:", "ntoes:"))
    (problem,) = problems_in(write(tmp_path, broker=PLUGINS, app=APP, red=NOTEBOOK, tool=tool))
    assert ("spec.ntoes", "the nearest known name is notes") == (problem.path, problem.hint)


@pytest.mark.parametrize("kind", ["Notebok", "notebook"])
def test_a_slip_of_a_plugins_kind_is_told(tmp_path: Path, kind: str):
    text = edited(NOTEBOOK, ("kind: Notebook", f"kind: {kind}"))
    (problem,) = problems_in(write(tmp_path, broker=PLUGINS, app=APP, red=text))
    assert ("unknown kind", "the nearest known one is Notebook") == (problem.what, problem.hint)


def test_plain_secrets_for_development_reach_a_plugin(tmp_path: Path):
    text = edited(NOTEBOOK, ("{valueFrom: {env: HOME_TOKEN}}", "{value: plain}"))
    broker = edited(PLUGINS, ("https://broker.example", "http://127.0.0.1:8420")) + "  allowPlainSecrets: dev\n"
    _, bundle = loaded_with_values(write(tmp_path, broker=broker, app=APP, red=text))
    assert [Secret("plain")] == list(bundle.plugins["sample"].resources[0].secrets.values())


INSTALLED = (
    "name an installed one (flowtools, gateway, integrations, mcp, sample, tools), or install the package that has it"
)
NAMES = {
    "unknown": (
        "absent",
        "no plug-in of this name is installed",
        INSTALLED,
    ),
    "an older name": (
        "actions",  # near to `integrations` by its letters, and no slip of it
        "no plug-in of this name is installed",
        INSTALLED,
    ),
    "twice": ("sample, sample", "the same plug-in twice", "remove one"),
}


@pytest.mark.parametrize("row", NAMES.values(), ids=NAMES)
def test_a_name_that_is_no_plugin_is_a_problem_at_its_place(tmp_path: Path, row: tuple[str, str, str]):
    names, what, hint = row
    (problem,) = problems_in(write(tmp_path, broker=named(names), app=APP))
    assert (what, hint) == (problem.what, problem.hint)
    assert BROKER.count("\n") + 1 == problem.line
    assert load_settings(tmp_path).plugins == tuple(names.split(", "))  # short commands need no plug-in


HEADER = "from oauthbroker.plugins import Plugin, ResourceKind, Strict, Tolerant\n\n\nclass Spec(Strict):\n    pages: int | None = None\n\n\n"
OF_KIND = HEADER + "KINDS = ({kinds},)\nPLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
UPDATE = "update the package of the plug-in, or remove the name"
AUDITED = """from oauthbroker.plugins import Plugin, PluginAuditEntry
class Counted(PluginAuditEntry, plugin="other"):
    count: float
TYPES = (Counted,)
PLUGIN = Plugin(name="other", audit_types="other:TYPES")
"""
BROKEN = {
    "no import": ("import nowhere_at_all", "the plug-in other of other-plugin cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all' at {place}:1"),
    "no plug-in": ("PLUGIN = 1", "the entry point other of other-plugin is not a Plug-in of this name"),
    "another name": (HEADER + "PLUGIN = Plugin(name='else')", "the entry point other of other-plugin is not a Plug-in of this name"),
    "a bad name": (HEADER + "PLUGIN = Plugin(name='../x')", "the plug-in other of other-plugin cannot be imported: ValueError at {place}:8"),
    "no kinds": (HEADER + "PLUGIN = Plugin(name='other', kinds='other:NONE')", "the plug-in other cannot import other:NONE: AttributeError: module 'other' has no attribute 'NONE'"),
    "kinds of another type": (HEADER + "KINDS = [1]\nPLUGIN = Plugin(name='other', kinds='other:KINDS')", "other:KINDS of the plug-in other is not a tuple of ResourceKind"),
    "our kind": (OF_KIND.format(kinds="ResourceKind(kind='OAuthApp', model=Spec)"), "the kind OAuthApp of the plug-in other is a kind of the broker"),
    "secrets": (OF_KIND.format(kinds="ResourceKind(kind='Secret', model=Spec)"), "the kind Secret of the plug-in other is a kind of the broker"),
    "a kind of another plug-in": (OF_KIND.format(kinds="ResourceKind(kind='Notebook', model=Spec)"), "the kind Notebook of the plug-in other is also a kind of the plug-in sample"),
    "one kind twice": (OF_KIND.format(kinds="ResourceKind(kind='Manual', model=Spec), ResourceKind(kind='Manual', model=Spec)"), "the kind Manual of the plug-in other is declared twice"),
    "a strict model for a tool": (OF_KIND.format(kinds="ResourceKind(kind='Tool', model=Spec)"), "the kind Tool of the plug-in other is read by the broker too, and its model is no Tolerant"),
    "a model of another base": ("import pydantic\n" + OF_KIND.format(kinds="ResourceKind(kind='Manual', model=pydantic.BaseModel)"), "the kind Manual of the plug-in other has a model that is no Strict and no Tolerant"),
    "no name of a kind": (OF_KIND.format(kinds="ResourceKind(kind='x/y', model=Spec)"), "the plug-in other of other-plugin cannot be imported: ValueError at {place}:8"),
    "an object for a model": (OF_KIND.format(kinds="ResourceKind(kind='Manual', model=Spec())"), "the plug-in other of other-plugin cannot be imported: TypeError: `model` is a class at {place}:8"),
    "no command": (HEADER + "PLUGIN = Plugin(name='other', commands={'take': 1})", "the plug-in other of other-plugin cannot be imported: TypeError: `commands` has a PluginCommand for each name at {place}:8"),
    "an exit": ("raise SystemExit(0)", "the plug-in other of other-plugin cannot be imported: SystemExit at {place}:1"),
    "no Exception": ("raise BaseException('s3cret')", "the plug-in other of other-plugin cannot be imported: BaseException at {place}:1"),
    "no Exception of its kinds": (HEADER + "def __getattr__(name):\n    raise BaseException('s3cret')\n\nPLUGIN = Plugin(name='other', kinds='other:KINDS')", "the plug-in other cannot import other:KINDS: BaseException at {place}:9"),
    "an extra that is missing": ("raise ModuleNotFoundError('x', name='pyrage')", 'the plug-in other of other-plugin cannot be imported: it needs `pip install "oauthbroker[backup]"`'),
    "a secret in a text": ("raise RuntimeError('s3cret')", "the plug-in other of other-plugin cannot be imported: RuntimeError at {place}:1"),
    "code that is wrong": ("\nlen(3)", "the plug-in other of other-plugin cannot be imported: TypeError: object of type 'int' has no len() at {place}:2"),
    "an audit member of a wrong type": (AUDITED, "the plug-in other: the member count of the audit entry Counted may not stand in the log"),
}  # fmt: skip


@pytest.mark.parametrize("row", BROKEN.values(), ids=BROKEN)
def test_a_plugin_that_cannot_be_used_is_named(tmp_path: Path, row: tuple[str, str]):
    text, what = row
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        (problem,) = problems_in(write(tmp_path / "config", broker=named("sample", "other"), app=APP))
    what = what.replace("{place}", str(tmp_path / "site" / "other.py"))
    assert ("spec.plugins[1]", what, UPDATE) == (problem.path, problem.what, problem.hint)


def test_two_packages_with_one_plugin_are_both_named(tmp_path: Path):
    site = distribution(tmp_path / "site", "false-plugin", {"sample": "false_plugin:PLUGIN"}, false_plugin="PLUGIN = 1")
    with on_path(site):
        (problem,) = problems_in(write(tmp_path / "config", broker=PLUGINS, app=APP))
    assert "the packages false-plugin and sample-plugin both have a plug-in sample" == problem.what


def test_two_plugins_may_read_one_tool(tmp_path: Path):
    text = (
        HEADER
        + "class More(Tolerant):\n    colour: str | None = None\n\n\nKINDS = (ResourceKind(kind='Tool', model=More),)\n"
    )
    text += "PLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    tool = edited(NOTED, ("entry: ./hammer.js", "colour: red"))
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        bundle = write(tmp_path / "config", broker=named("sample", "other"), app=APP, red=NOTEBOOK, tool=tool)
        loaded = load(bundle)
        assert {"sample": ["Notebook", "Tool"], "other": ["Tool"]} == {
            plugin: sorted(each.kind for each in drafts) for plugin, drafts in loaded.plugins.items()
        }
        assert "red" == loaded.plugins["other"][0].spec.colour
        (problem,) = problems_in(write(tmp_path / "config", tool=edited(tool, ("colour: red", "colour: 1"))))
    assert ("spec.colour", "not text") == (problem.path, problem.what)


CHECK = """
def explode(*resources):
    raise {error}("planted")


KINDS = (ResourceKind(kind='Manual', model=Spec, check=explode),)"""
VALIDATOR = """
from typing import Annotated, Any
from pydantic import BeforeValidator


def explode(value: Any) -> Any:
    raise {error}(f"planted {{value}}")


class Odd(Strict):
    pages: Annotated[int, BeforeValidator(explode)] | None = None


KINDS = (ResourceKind(kind='Manual', model=Odd),)"""
LATER = """
async def later(*resources):
    resources[0].refuse((), "never", "never")


KINDS = (ResourceKind(kind='Manual', model=Spec, check=later),)"""


def test_a_check_that_is_an_async_function_is_a_problem(tmp_path: Path):
    text = f"{HEADER}{LATER}\nPLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        (found,) = problems_in(write(tmp_path / "config", broker=named("other"), app=APP, manual=MANUAL))
    assert "could not read this resource: its check is an async function" in found.what


@pytest.mark.parametrize("error", ["ZeroDivisionError", "SystemExit", "BaseException"])
@pytest.mark.parametrize("kinds", [CHECK, VALIDATOR], ids=["a check", "a validator"])
def test_code_of_a_plugin_that_raises_is_a_problem_beside_the_others(tmp_path: Path, kinds: str, error: str):
    text = f"{HEADER}{kinds.format(error=error)}\nPLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    app = edited(APP, ("flow: authorizationCode", "flow: nothing"))
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        found = problems_in(write(tmp_path / "config", broker=named("other"), app=app, manual=MANUAL))
    what = {each.what.partition(" at ")[0]: each.what for each in found}
    assert {f"the plug-in other could not read this resource: {error}", "unknown value"} <= what.keys()
    assert f"{tmp_path / 'site' / 'other.py'}:" in what[f"the plug-in other could not read this resource: {error}"]
    assert "planted" not in str([str(each) for each in found])


UNBUILDABLE = {
    "a required field": ("    name: str\n", "spec: {}", "spec.name", "missing"),
    "a wrong required field": ("    name: str\n", "spec: {name: 3}", "spec.name", "not text"),
    "a rule for the whole": ("    name: str | None = None\n\n    @model_validator(mode='after')\n    def both(self) -> 'Whole':\n        raise ValueError('planted')\n", "spec: {}", "spec", "not valid here"),
}  # fmt: skip


@pytest.mark.parametrize("row", UNBUILDABLE.values(), ids=UNBUILDABLE)
def test_a_spec_that_cannot_be_built_is_one_problem_and_is_not_checked(tmp_path: Path, row: tuple[str, str, str, str]):
    body, spec, path, what = row
    text = f"from pydantic import model_validator\n{HEADER}class Whole(Strict):\n{body}\n\n"
    text += "KINDS = (ResourceKind(kind='Manual', model=Whole, check=lambda it, all: 1 / 0),)\n"
    text += "PLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    manual = edited(MANUAL, ("spec: {pages: 3}", spec))
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        (problem,) = problems_in(write(tmp_path / "config", broker=named("other"), app=APP, manual=manual))
    assert (path, what) == (problem.path, problem.what)


def test_a_field_of_a_plugin_is_no_typo_of_a_field_of_ours(tmp_path: Path):
    """`export` resembles our `exports`; a plug-in that reads it makes it a field of its own."""
    text = (
        HEADER
        + "class More(Tolerant):\n    export: str | None = None\n\n\nKINDS = (ResourceKind(kind='Tool', model=More),)\n"
    )
    text += "PLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    tool = HEAD + "kind: Tool\nmetadata: {name: saw}\nspec: {export: all}\n"
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        (problem,) = problems_in(write(tmp_path / "config", broker=BROKER, tool=tool))
        assert "the nearest known name is exports" == problem.hint
        assert "all" == load(write(tmp_path / "config", broker=named("other"))).plugins["other"][0].spec.export


def test_an_extension_without_auth_is_read_where_a_plugin_reads_extensions(tmp_path: Path):
    text = (
        HEADER
        + "class More(Tolerant):\n    pages: int | None = None\n\n\nKINDS = (ResourceKind(kind='Extension', model=More),)\n"
    )
    text += "PLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    extension = HEAD + "kind: Extension\nmetadata: {name: glue}\nspec: {pages: 3}\n"
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        folder = write(tmp_path / "config", broker=BROKER, glue=extension)
        assert ["Extension"] == [each.kind for each in load(folder).ignored]
        assert 3 == load(write(folder, broker=named("other"))).plugins["other"][0].spec.pages


def test_a_model_may_contain_itself(tmp_path: Path):
    text = HEADER + "class Tree(Strict):\n    pages: int | None = None\n    below: 'list[Tree] | None' = None\n\n\n"
    text += "KINDS = (ResourceKind(kind='Manual', model=Tree),)\nPLUGIN = Plugin(name='other', kinds='other:KINDS')\n"
    manual = edited(MANUAL, ("{pages: 3}", "{below: [{below: [{pages: 1, pagse: 2}]}]}"))
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        (problem,) = problems_in(write(tmp_path / "config", broker=named("other"), manual=manual))
    assert ("spec.below[0].below[0].pagse", "the nearest known name is pages") == (problem.path, problem.hint)


def test_each_plugin_sees_its_own_reading_of_a_resource(tmp_path: Path):
    """Both plug-ins read tools; the check of each finds its own fields there."""
    text = (
        HEADER
        + """
class More(Tolerant):
    colour: str | None = None


def check(tool, tools):
    assert [More] == [type(each.spec) for each in tools.of("Tool").values()]
    assert ["OAuthAppSpec"] == [type(each.spec).__name__ for each in tools.of("OAuthApp").values()]
    assert ["NotebookSpec"] == [type(each.spec).__name__ for each in tools.of("Notebook").values()]


KINDS = (ResourceKind(kind='Tool', model=More, check=check),)
PLUGIN = Plugin(name='other', kinds='other:KINDS')
"""
    )
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        for order in (("sample", "other"), ("other", "sample")):
            bundle = write(tmp_path / "config", broker=named(*order), app=APP, red=NOTEBOOK, tool=NOTED)
            assert set(order) == set(load(bundle).plugins)


def test_a_kind_of_the_runtime_is_read_where_a_plugin_declares_it(tmp_path: Path):
    """`MCPServer` belongs to another program, until a plug-in that reads it is named."""
    text = OF_KIND.format(kinds="ResourceKind(kind='MCPServer', model=Spec)")
    server = edited(MANUAL, ("kind: Manual", "kind: MCPServer"))
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        folder = write(tmp_path / "config", broker=BROKER, server=server)
        assert ["MCPServer"] == [each.kind for each in load(folder).ignored]
        loaded: Loaded = load(write(folder, broker=named("other")))
    assert () == loaded.ignored
    assert ["MCPServer"] == [each.kind for each in loaded.plugins["other"]]


SEEN = """
seen = []


def check(resource, resources):
    seen.append(resources.folder)


KINDS = (ResourceKind(kind="Manual", model=Spec, check=check),)
PLUGIN = Plugin(name="other", kinds="other:KINDS")
"""


@pytest.mark.parametrize("given", ["config", "config/all.yaml"])
def test_a_plugin_learns_the_folder_of_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str):
    text = HEADER + SEEN
    folder = tmp_path / "config"
    write(folder, all=named("other") + "---\n" + MANUAL)
    monkeypatch.chdir(tmp_path)
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        loaded = load(Path(given))
        from other import seen  # type: ignore[import-not-found]

        assert folder == resolve(loaded, {}, {}).plugins["other"].folder
    assert [folder] == seen


def test_a_bundle_without_plugins_searches_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.config.plugins.named_plugins.installed", lambda: pytest.fail("searched"))
    assert {} == load(write(tmp_path, broker=BROKER, app=APP)).plugins


PLACES = """
def places(store, resources):
    return [store.with_name(each.name) for each in resources.resources]


def failing(store, resources):
    raise KeyError(store)


def text(store, resources):
    return "abc"


def numbers(store, resources):
    return [1]


def leaving(store, resources):
    raise SystemExit(3)
"""


def test_the_places_that_a_plugin_keeps_secret_are_those_of_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    install(tmp_path / "packages", "vault", PLACES, "secret_places=here('places')")
    install(tmp_path / "packages", "broken", PLACES, "secret_places=here('failing')")
    bundle = resolve(load(write(tmp_path / "config", broker=named("vault"))), {}, {})
    assert bundle.settings.secret_places == bundle.state_places, "it has no resource"
    refused = load(write(tmp_path / "other", broker=named("broken")))
    with pytest.raises(BrokerError) as raised:
        resolve(refused, {}, {})
    assert (Code.CONFIG_INVALID, True) == (
        raised.value.code,
        "the plug-in broken: KeyError at " in str(raised.value.note),
    )


@pytest.mark.parametrize("places", ["text", "numbers", "leaving"])
def test_secret_places_that_are_no_list_of_paths_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str
):
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    install(tmp_path / "packages", "vault", PLACES, f"secret_places=here('{places}')")
    loaded = load(write(tmp_path / "config", broker=named("vault")))
    with pytest.raises(BrokerError) as raised:
        resolve(loaded, {}, {})
    assert f":{places} of the plug-in vault: " in raised.value.note
