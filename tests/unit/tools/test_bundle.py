"""Resources of the tool runtime: all errors of a bundle at once, each at its place (specification 002, sections 4, 6 and
15)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.config import load, resolve
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.tools import base
from oauthbroker.tools.bundle.entries import BASE_TOOLS, EntryRefused
from oauthbroker.tools.bundle.loading import register_tools
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.registry import RegistrationRefused, Registry
from oauthbroker.tools.types.results import ToolCall
from tests.unit.config.bundles import BROKER, HEAD, edited, problems_in, unmarked, write
from tests.unit.tools.kit import scope_of, scrub

PLUGIN = BROKER + "  plugins: [tools]\n"
BASE = Path(base.__file__).parent
PRINTED = Path(__file__).parent / "printed"
HAMMER = """import sys
sys.modules["builtins"].IMPORTED = True
handlers = {"hit": lambda ctx, args: "ok", "hold": lambda ctx, args: "ok"}
"""
TOOL = (
    HEAD
    + """kind: Tool
metadata: {name: hammer}
spec:
  entry: ./tools/hammer.py
  errorMessageLimit: 1200
  exports:
    - name: hit
      description: Hit a nail
      parameters: {type: object, properties: {nail: {type: string}}, required: [nail]}
    - name: hold
"""
)
SWARM = (
    HEAD
    + f"""kind: Swarm
metadata: {{name: default}}
spec:
  entryAgent: Agent/planner
  agents: [Agent/planner]
  policy: {{maxStepsPerTurn: 8, toolCalls: catalog}}
  changesets: {{allow: ["prompts/**"]}}
---
{HEAD}kind: Agent
metadata: {{name: planner}}
spec:
  modelRef: Model/large
  systemPrompt: Plan.
  tools: [Tool/hammer]
  extensions: [{{ref: Extension/weather}}]
---
{HEAD}kind: Extension
metadata: {{name: weather}}
spec: {{entry: ./weather.py, config: {{city: Seoul}}}}
---
{HEAD}kind: Connector
metadata: {{name: page}}
spec: {{swarmRef: Swarm/default}}
---
{HEAD}kind: Model
metadata: {{name: large}}
spec: {{provider: scripted, name: large-1, apiKey: {{valueFrom: {{env: MODEL_KEY}}}}, params: {{temperature: 0.2}}}}
"""
)


def bundle(folder: Path, tool: str = TOOL, swarm: str = SWARM, hammer: str = HAMMER) -> Path:
    config = write(folder / "config", broker=PLUGIN, tool=tool, swarm=swarm)
    config.joinpath("tools").mkdir(exist_ok=True)
    config.joinpath("tools/hammer.py").write_text(hammer, "utf-8")
    config.joinpath("weather.py").write_text("def register(api): ...\n", "utf-8")
    return config


def resources(folder: Path) -> PluginResources:
    return resolve(load(folder), {"MODEL_KEY": "k"}, {}).plugins["tools"]


@pytest.mark.rule("tools.ours-3", "tools.ours-4", "002-2.7-4")
def test_all_kinds_load_and_no_code_of_the_bundle_runs(tmp_path: Path):
    found = resources(bundle(tmp_path))
    assert {"Tool", "Swarm", "Agent", "Extension", "Connector", "Model"} == {each.kind for each in found.resources}
    swarm, agent = found.of("Swarm")["default"].spec, found.of("Agent")["planner"].spec
    assert (8, 5000, "catalog", ["prompts/**"]) == (
        swarm.policy.max_steps_per_turn, swarm.policy.grace_period_ms, swarm.policy.tool_calls, swarm.changesets.allow,
    )  # fmt: skip
    assert ("large", "hammer", "weather") == (agent.model_ref.name, agent.tools[0].name, agent.extensions[0].name)
    assert "k" == found.of("Model")["large"].secrets["apiKey",].reveal()
    assert {"city": "Seoul"} == found.of("Extension")["weather"].spec.config
    assert tmp_path / "config" == found.folder
    assert not hasattr(__builtins__, "IMPORTED")


def printed(name: str) -> str:
    text = PRINTED.joinpath(f"{name}.yaml").read_text("utf-8")
    return re.sub(r'entry: "(.*)/index\.ts"', r'entry: "\1.py"', text)


@pytest.mark.rule(
    "002-4.1-1",
    "002-14.1-1",
    "002-14.2-1",
    "002-4.2-1",
    "002-2.2-1",
    "002-2.2-2",
    "002-2.4-2",
    "002-2.4-3",
    "004-12.3.1-3",
    "002-3.1-1",
    "002-5.1-1",
    "002-4.2-2",
    "002-4.2-3",
    "002-4.3-5",
    "002-6.1-2",
)
@pytest.mark.parametrize(
    ("name", "exports", "limit"),
    [
        ("bash", ["exec", "script"], 1200),
        ("file-system", ["read", "write"], 2000),
        ("http-fetch", ["get", "post"], 1000),
    ],
)
def test_the_printed_tools_load(tmp_path: Path, name: str, exports: list[str], limit: int):
    config = write(tmp_path / "config", broker=PLUGIN, tool=printed(name))
    config.joinpath("tools").mkdir()
    written = ", ".join(f"{export!r}: print" for export in exports)
    config.joinpath(f"tools/{name}.py").write_text(f"handlers: dict[str, object] = {{{written}}}\n", "utf-8")
    found = resources(config)
    registry = Registry()
    register_tools(registry, {each.name: each.spec for each in found.resources}, config)
    assert [f"{name}__{export}" for export in exports] == [each.name for each in registry]
    assert {limit} == {each.message_limit for each in registry}
    assert {f"Tool/{name}"} == {each.owner for each in registry}
    declared = yaml.safe_load(printed(name))["spec"]["exports"]
    assert [{"name": f"{name}__{each['name']}", "description": each["description"], "parameters": each["parameters"],
             "source": {"type": "config", "name": name}} for each in declared] == [each.item.to_json() for each in registry]  # fmt: skip


@pytest.mark.rule("002-14-1", "002-14-2", "002-14-3", "002-14.1-1", "002-14.2-1", "002-4.1-1")
async def test_the_printed_tools_are_called_with_the_base_tools_as_entry(tmp_path: Path):
    """The printed schemas allow more values than ours: a fraction or less than 0 as `maxBytes`, any value as a header."""
    config = write(tmp_path / "config", broker=PLUGIN)
    for name in ("bash", "file-system", "http-fetch"):
        text = re.sub(r"entry: .*", f"entry: base:{name}", printed(name))
        config.joinpath(f"{name}.yaml").write_text(text, "utf-8")
    registry = Registry()
    register_tools(registry, {each.name: each.spec for each in resources(config).resources}, config)
    scope = scope_of(registry, "bash", "file-system", "http-fetch", workdir=tmp_path)

    async def called(name: str, **args: Any) -> Any:
        result = await ToolCalls(registry, scrub).perform(ToolCall("c", name, args), scope)
        return result.output if result.error is None else result.error.name

    path = str(tmp_path / "메모")
    assert {"path": path, "size": 6, "written": True} == await called("file-system__write", path="메모", content="한글")
    for most, content in {100: "한글", 3.9: "한", 0: "", -2: "", -(10**30): ""}.items():
        found = {"path": path, "size": 6, "truncated": most < 6, "content": content}
        assert found == await called("file-system__read", path=path, maxBytes=most)
    assert "FileNotFoundError" == await called("file-system__read", path="없음")
    assert {"stdout": "한글", "exitCode": 0} == await called("bash__exec", command="cat 메모")
    assert "RequestRefusedError" == await called("http-fetch__get", url="https://example.com/", headers={"X": 1})
    assert "RequestRefusedError" == await called("http-fetch__post", url="http://example.com/", body={"a": "한"})


PROBLEMS = {  # (old, new with @@ at the place, the case)
    "no entry": ("  entry: ./tools/hammer.py\n", "", "missing"),
    "no such file": ("./tools/hammer.py", "@@./tools/axe.py", "there is no such file"),
    "a folder": ("./tools/hammer.py", "@@./tools", "not a Python file"),
    "another file": ("./tools/hammer.py", "@@./tool.yaml", "not a Python file"),
    "outside": ("./tools/hammer.py", "@@../outside.py", "outside the folder of the bundle"),
    "a link to the outside": ("./tools/hammer.py", "@@./tools/link.py", "outside the folder of the bundle"),
    "no such base tool": ("./tools/hammer.py", "@@base:axe", "there is no such base tool"),
    "no name of a base tool": ("./tools/hammer.py", "@@base:../loading", "there is no such base tool"),
    "absolute": ("./tools/hammer.py", "@@/etc/passwd.py", "not a path from the folder of the bundle"),
    "no exports": ("  exports:\n    - name: hit\n      description: Hit a nail\n      parameters: {type: object, properties: {nail: {type: string}}, required: [nail]}\n    - name: hold\n", "", "missing"),
    "exports without any": ("\n    - name: hit\n      description: Hit a nail\n      parameters: {type: object, properties: {nail: {type: string}}, required: [nail]}\n    - name: hold\n", " @@[]\n", "without any export"),
    "an export without a name": ("- name: hold", "- @@description: hold", "missing"),
    "the same export twice": ("name: hold", "name: @@hit", "the same export twice"),
    "a separator in an export": ("name: hold", "name: @@hold__on", "the name begins with _ or is not of small letters, digits, - and single _"),
    "a capital letter": ("name: hold", "name: @@Hold", "the name begins with _ or is not of small letters, digits, - and single _"),
    "a resource with a separator": ("name: hammer", "name: @@ham__mer", "the name ends with _ or is not of small letters, digits, - and single _"),
    "a resource with a capital letter": ("name: hammer", "name: @@Hammer", "the name ends with _ or is not of small letters, digits, - and single _"),
    "a resource with a dot": ("name: hammer", "name: @@ham.mer", "the name ends with _ or is not of small letters, digits, - and single _"),
    "no type of parameters": ("{type: object, properties", "@@{properties", "no usable JSON Schema 2020-12 of type object"),
    "a wrong schema": ("{nail: {type: string}}", "{nail: {type: @@nothing}}", "no usable JSON Schema 2020-12 of type object"),
    "a property that is named type": ("{nail: {type: string}}", "{type: @@nothing}", "no usable JSON Schema 2020-12 of type object"),
    "a wrong member of a schema": ("required: [nail]", "required: @@nail", "no usable JSON Schema 2020-12 of type object"),
    "a misspelt member without a type": ("- name: hold", "- name: hold\n      @@params: {}", "unknown field"),
    "another document": ("{nail: {type: string}}", '{nail: {$ref: "https://x.example/y"}}', "no usable JSON Schema 2020-12 of type object"),
    "a limit that is no number": ("errorMessageLimit: 1200", "errorMessageLimit: @@many", None),
    "a limit of nothing": ("errorMessageLimit: 1200", "errorMessageLimit: @@0", None),
    "a limit below nothing": ("errorMessageLimit: 1200", "errorMessageLimit: @@-1", None),
    "a limit that is too high": ("errorMessageLimit: 1200", "errorMessageLimit: @@10001", None),
    "a limit that is true": ("errorMessageLimit: 1200", "errorMessageLimit: @@true", None),
    "a limit that is a text": ("errorMessageLimit: 1200", 'errorMessageLimit: @@"1200"', None),
    "a limit that is no whole number": ("errorMessageLimit: 1200", "errorMessageLimit: @@1200.5", None),
    "an entry without letters": ("entry: ./tools/hammer.py", 'entry: @@""', None),
    "an entry that is the bundle": ("entry: ./tools/hammer.py", "entry: @@.", "not a Python file"),
    "an entry with NUL": ("entry: ./tools/hammer.py", 'entry: @@"./tools/ham\\0mer.py"', "not a path from the folder of the bundle"),
    "an entry of no text": ("entry: ./tools/hammer.py", "entry: @@[./tools/hammer.py]", None),
    "an export without letters": ("name: hold", 'name: @@""', None),
    "an export of no text": ("name: hold", "name: @@7", None),
    "an export in another alphabet": ("name: hold", "name: @@h\u043eld", "the name begins with _ or is not of small letters, digits, - and single _"),
    "an export that begins with a separator's half": ("name: hold", "name: @@_hold", "the name begins with _ or is not of small letters, digits, - and single _"),
    "parameters that are a list": ("{type: object, properties: {nail: {type: string}}, required: [nail]}", "@@[]", None),
    "parameters with a number that JSON does not have": ("required: [nail]", "required: [nail], default: .nan", "no usable JSON Schema 2020-12 of type object"),
    "a time of nothing": ("  errorMessageLimit: 1200", "  timeoutSeconds: @@0", "too small"),
    "a network without isolation": ("  errorMessageLimit: 1200", "  network: @@open", "a limit that only `isolation: process` keeps"),
    "an unknown network": ("  errorMessageLimit: 1200", "  isolation: process\n  network: @@lan", None),
    "a misspelt member of an export": ("      parameters: {type", "      @@paramters: {type", "unknown field"),
    "an unknown member of an export": ("- name: hold", "- name: hold\n      @@inputSchema: {type: object}", "unknown field"),
    "an unknown member": ("  errorMessageLimit: 1200", "  @@errorMesageLimit: 1200", "unknown field"),
    "an unknown isolation": ("  errorMessageLimit: 1200", "  isolation: @@container", None),
}  # fmt: skip


@pytest.mark.rule("002-15-1", "002-15-2", "002-15-5", "002-15-6", "002-2.7-1", "002-2.7-4", "002-2.7-5", "002-2.2-3")
@pytest.mark.rule("002-6.1-1", "002-6.1-2", "002-6.2-1", "002-6.2-2", "002-4.2-1", "002-4.2-2")
@pytest.mark.rule("002-4.3-1", "002-4.3-2", "002-4.3-3", "002-4.3-4", "002-2.4-2")
@pytest.mark.parametrize("case", PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_of_a_tool_is_one_problem_at_its_place(tmp_path: Path, case: tuple[str, str, str | None]):
    old, new, what = case
    text, place = unmarked(edited(TOOL, (old, new))) if "@@" in new else (edited(TOOL, (old, new)), None)
    tmp_path.joinpath("outside.py").write_text("handlers = {}\n", "utf-8")
    config = bundle(
        tmp_path, tool=text, swarm=HEAD + "kind: Model\nmetadata: {name: m}\nspec: {provider: x, name: y}\n"
    )
    config.joinpath("tools/link.py").symlink_to(tmp_path / "outside.py")
    (problem,) = problems_in(config)
    assert what in {None, problem.what}
    assert place in {None, (problem.line, problem.column)}


def test_a_misspelt_auth_of_an_export_is_named_and_read_as_auth(tmp_path: Path):
    """The tool declares no app: the second problem stands in the right word, too."""
    text = edited(TOOL, ("- name: hold", "- name: hold\n      auht: {scopes: [repo]}"))
    found = [(each.path, each.what) for each in problems_in(bundle(tmp_path, tool=text))]
    assert [
        ("spec.exports[1].auht", "unknown field"),
        ("spec.exports[1].auth", "an export's auth without its tool's"),
    ] == found


SWARM_PROBLEMS = {
    "a model without its kind": ("modelRef: Model/large", "modelRef: @@large", None),
    "a swarm without a kind of its agents": ("agents: [Agent/planner]", "agents: [@@planner]", None),
    "no such model": ("modelRef: Model/large", "modelRef: @@Model/small", "no such Model"),
    "a reference of another kind": ("tools: [Tool/hammer]", "tools: [@@Model/large]", None),
    "no such tool": ("tools: [Tool/hammer]", "tools: [Tool/hammer, @@Tool/axe]", None),
    "the same tool twice": ("tools: [Tool/hammer]", "tools: [Tool/hammer, @@Tool/hammer]", "the same reference twice"),
    "no such extension": ("{ref: Extension/weather}", "@@{ref: Extension/wind}", None),
    "no such agent": ("agents: [Agent/planner]", "agents: [Agent/planner, @@Agent/writer]", None),
    "no such swarm": ("swarmRef: Swarm/default", "swarmRef: @@Swarm/other", None),
    "no such entry of an extension": ("entry: ./weather.py", "entry: @@./wind.py", "there is no such file"),
    "an unknown member of an extension": ("config: {city: Seoul}", "@@confg: {city: Seoul}", None),
    "an unknown member": ("systemPrompt: Plan.", "@@systemPromt: Plan.", None),
    "too many steps": ("maxStepsPerTurn: 8", "maxStepsPerTurn: @@1001", None),
}  # fmt: skip


@pytest.mark.rule("tools.ours-3")
@pytest.mark.parametrize("case", SWARM_PROBLEMS.values(), ids=SWARM_PROBLEMS)
def test_each_problem_of_another_resource_is_one_problem_at_its_place(
    tmp_path: Path, case: tuple[str, str, str | None]
):
    old, new, _what = case
    text, place = unmarked(edited(SWARM, (old, new)))
    (problem,) = problems_in(bundle(tmp_path, swarm=text))
    assert place == (problem.line, problem.column), str(problem)


def test_a_tool_with_a_capital_letter_is_one_problem_though_an_agent_names_it_in_small_ones(tmp_path: Path):
    (problem,) = problems_in(bundle(tmp_path, tool=edited(TOOL, ("name: hammer", "name: Hammer"))))
    assert ("metadata.name", "rename it: the model sees resource__export") == (problem.path, problem.hint)


def test_a_wrong_type_deep_in_parameters_has_its_path_and_the_words_that_there_are(tmp_path: Path):
    tool = edited(TOOL, ("{nail: {type: string}}", "{nail: {type: strng}}"))
    (problem,) = problems_in(bundle(tmp_path, tool=tool))
    assert "spec.exports[0].parameters.properties.?.type" == problem.path
    assert "types are array, boolean, integer, null, number, object and string" in problem.hint


def test_the_names_of_base_tools_are_those_of_the_package_and_a_wrong_one_has_the_nearest(tmp_path: Path):
    shipped = [each["spec"]["entry"] for each in yaml.safe_load_all((BASE / "tools.yaml").read_text("utf-8"))]
    assert sorted(shipped) == [*BASE_TOOLS]
    (problem,) = problems_in(bundle(tmp_path, tool=edited(TOOL, ("./tools/hammer.py", "base:bsh"))))
    names = "the nearest is base:bash; there are base:agents, base:bash, base:file-system, base:http-fetch"
    assert ("there is no such base tool", names) == (problem.what, problem.hint)


@pytest.mark.rule("tools.ours-3")
def test_the_entry_agent_is_one_of_the_swarm(tmp_path: Path):
    writer = f"---\n{HEAD}kind: Agent\nmetadata: {{name: writer}}\nspec: {{modelRef: Model/large}}\n"
    text, place = unmarked(edited(SWARM, ("entryAgent: Agent/planner", "entryAgent: @@Agent/writer")) + writer)
    (problem,) = problems_in(bundle(tmp_path, swarm=text))
    assert ("an agent that this swarm does not list", place) == (problem.what, (problem.line, problem.column))


def test_a_misspelt_member_is_refused_with_the_name_that_was_meant(tmp_path: Path):
    """Without its `parameters`, an export would take any arguments."""
    (problem,) = problems_in(bundle(tmp_path, tool=edited(TOOL, ("parameters: {type", "paramters: {type"))))
    assert ("unknown field", "the nearest known name is parameters") == (problem.what, problem.hint)
    assert "spec.exports[0].paramters" == problem.path


def test_all_errors_come_at_once(tmp_path: Path):
    tool = edited(TOOL, ("./tools/hammer.py", "./axe.py"), ("name: hold", "name: Hold"))
    swarm = edited(SWARM, ("modelRef: Model/large", "modelRef: Model/small"), ("./weather.py", "./wind.py"))
    assert 4 == len(problems_in(bundle(tmp_path, tool=tool, swarm=swarm)))


MODULES = {
    "nothing": ("", "a module without `handlers`"),
    "another name": ('Handlers = {"hit": print, "hold": print}', "a module without `handlers`"),
    "no key": ("handlers = {}", "a module whose `handlers` lacks hit, hold"),
    "a key in another alphabet": ('handlers = {"hit": print, "h\u043eld": print}', "a module whose `handlers` lacks hold"),
    "a key that is no text": ('handlers = {"hit": print, 7: print}', None),
    "a key is missing": ('handlers = {"hit": print}', "a module whose `handlers` lacks hold"),
    "no handlers": ("x = 1", "a module without `handlers`"),
    "no Python": ("x = 1\nhandlers = {", "not readable as Python, hammer.py:2:12: '{' was never closed"),
    "a null byte": ("handlers = {}\0", "not readable as Python, hammer.py: source code string cannot contain null bytes"),
    "nested too deeply": ("handlers = " + "[" * 5000 + "]" * 5000, "not readable as Python, hammer.py:1:212: too many nested parentheses"),
    "made while it runs": ("handlers = dict(hit=print, hold=print)", None),
    "filled later": ('handlers = {}\nhandlers["hit"] = handlers["hold"] = print', None),
    "filled by a decorator": ("handlers = {}\ndef tool(f):\n    handlers[f.__name__] = f\n", None),
    "with another dictionary inside": ('handlers = {**{"hit": print, "hold": print}}', None),
    "imported": ("from os import path as handlers", None),
    "imported with all": ("from os import *", None),
    "with a type": ('handlers: dict[str, object] = {"hit": print, "hold": print, "more": print}', None),
    "in another encoding": ('# coding: latin-1\nhandlers = {"hit": "\xe9", "hold": 1}', None),
}  # fmt: skip


@pytest.mark.rule("002-15-3", "002-15-4", "002-2.7-2", "002-4.3-6", "002-7.2-1", "tools.ours-4")
@pytest.mark.parametrize("row", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("isolated", [False, True], ids=["here", "isolated"])
def test_handlers_that_are_written_out_are_compared_with_the_exports_at_load(
    tmp_path: Path, row: tuple[str, str | None], isolated: bool
):
    text, what = row
    tool = edited(TOOL, ("  errorMessageLimit: 1200", "  isolation: process")) if isolated else TOOL
    config = bundle(tmp_path, tool=tool, hammer=HAMMER)
    config.joinpath("tools/hammer.py").write_bytes(text.encode("latin-1" if "latin" in text else "utf-8"))
    if what is None:
        load(config)
        return
    (problem,) = problems_in(config)
    assert (what, 5) == (problem.what, problem.line)


def test_an_extension_has_a_function_to_register(tmp_path: Path):
    config = bundle(tmp_path)
    config.joinpath("weather.py").write_text("def registr(api): ...\n", "utf-8")
    (problem,) = problems_in(config)
    assert "a module without `register`" == problem.what


IMPORTS = {
    "a key that is no text": ('handlers = {"hit": print, 7: print}', "no such handler"),
    "handlers that are none": ("handlers = None", "it has no usable `handlers`"),
    "handlers that a function returns": ("def handlers():\n    return {}\n", "it has no usable `handlers`"),
    "a handler is missing": ("handlers = dict(hit=print)", "cannot register hold: its module has no such handler"),
    "no mapping": ("handlers = list()", "it has no usable `handlers`"),
    "its import fails": ("handlers = {}[1]", r"its import raised KeyError: 1 \(hammer\.py:1\)"),
    "its import ends the process": ("handlers = exit(3)", r"its import raised SystemExit: 3 \(hammer\.py:1\)"),
    "a handler that is no function": ("handlers = dict(hit=3, hold=print)", "no function"),
}  # fmt: skip


@pytest.mark.rule("002-15-3", "002-15-4", "002-2.7-1", "002-2.7-2", "002-4.3-6")
@pytest.mark.parametrize("row", IMPORTS.values(), ids=IMPORTS)
def test_a_module_that_cannot_be_used_is_refused_when_it_is_imported(tmp_path: Path, row: tuple[str, str]):
    text, what = row
    config = bundle(tmp_path, hammer=text)
    tools = {each.name: each.spec for each in resources(config).resources if each.kind == "Tool"}
    with pytest.raises((EntryRefused, RegistrationRefused), match=f"Tool/hammer .*{what}"):
        register_tools(Registry(), tools, config)


@pytest.mark.rule("002-15-3", "002-15-4")
def test_a_tool_with_a_process_of_its_own_is_not_imported(tmp_path: Path):
    class Isolated:
        def __init__(self, entry: Path, spec: ToolResourceSpec, seconds: float) -> None:
            self.entry, self.seconds = entry, seconds
            assert "process" == spec.isolation

        async def call(self, export: str, context: object, args: object) -> None: ...

    config = bundle(
        tmp_path, tool=edited(TOOL, ("  errorMessageLimit: 1200", "  isolation: process")), hammer="handlers = exit(3)"
    )
    tools = {"hammer": resources(config).of("Tool")["hammer"].spec}
    registry = Registry()
    register_tools(registry, tools, config, isolate=Isolated)
    assert [config / "tools/hammer.py"] * 2 == [getattr(each.handler, "entry", "") for each in registry]
    with pytest.raises(RegistrationRefused, match="process of its own"):
        register_tools(Registry(), tools, config)


def test_an_entry_is_read_anew_each_time_it_is_imported(tmp_path: Path):
    config = bundle(tmp_path)
    tools = {"hammer": resources(config).of("Tool")["hammer"].spec}
    found = []
    for answer in ("ok", "later"):
        config.joinpath("tools/hammer.py").write_text(HAMMER.replace('"ok"', f'"{answer}"'), "utf-8")
        registry = Registry()
        register_tools(registry, tools, config)
        found += [each.handler(None, {}) for each in registry]  # type: ignore[operator]
    assert ["ok", "ok", "later", "later"] == found
