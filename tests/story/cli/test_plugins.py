"""An installed plug-in at the command line, and its resources in a running broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.cli import COMMANDS
from oauthbroker.config import ConfigInvalidError
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import MAIN, REPOSITORY, Desk, command, environment
from tests.kit.plugins_installed import SAMPLE, distribution, on_path
from tests.kit.warm_python import cold_starts

HEAD = "apiVersion: agents.example.io/v1alpha1\n"
NOTEBOOK = HEAD + (
    "kind: Notebook\nmetadata: {name: red}\nspec:\n  oauthAppRef: OAuthApp/mail\n"
    "  servers: {home: {url: 'https://home.example', token: {valueFrom: {env: HOME_TOKEN}}}}\n"
)


def path_of(*folders: Path) -> str:
    return ":".join(map(str, (REPOSITORY, *folders)))


@pytest.fixture
def ready(desk: Desk, idp: IdentityProvider) -> Desk:
    """A configuration that names the sample plug-in and has a notebook."""
    desk.ready_to_serve(idp)
    broker = desk.folder / "config" / "broker.yaml"
    broker.write_text(broker.read_text("utf-8") + "  plugins: [sample]\n", "utf-8")
    desk.write("red", NOTEBOOK)
    return desk


# the command line


@pytest.mark.slow
def test_help_lists_the_commands_of_plugins_after_ours(tmp_path: Path):
    done = command("--help", cwd=tmp_path, PYTHONPATH=path_of(SAMPLE))
    assert 0 == done.code
    assert done.out.index("providers ") < done.out.index("Plug-in sample") < done.out.index("notebooks ")
    assert "Notebooks of the sample plug-in: list." in done.out
    assert "notebooks" not in command("--help", cwd=tmp_path).out


@pytest.mark.slow
def test_help_imports_nothing_of_a_plugin_but_its_declaration(tmp_path: Path):
    heavy = "{'sample_plugin', 'sample_plugin.specs', 'sample_plugin.commands', 'pydantic', 'starlette', 'yaml', 'cryptography'}"
    ask = f"import atexit, sys; atexit.register(lambda: print('loaded', sorted({heavy} & set(sys.modules))));"
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", ask + MAIN, "--help"], check=True, cwd=tmp_path, capture_output=True, text=True,
            env=environment(PYTHONPATH=path_of(SAMPLE)),
        )  # fmt: skip
    assert "loaded ['sample_plugin']" == done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_command_of_ours_looks_for_no_plugin(tmp_path: Path):
    ask = "import atexit, sys; atexit.register(lambda: print('loaded', 'sample_plugin' in sys.modules));"
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", ask + MAIN, "providers", "list"], check=True, cwd=tmp_path, capture_output=True,
            text=True, env=environment(PYTHONPATH=path_of(SAMPLE)),
        )  # fmt: skip
    assert "loaded False" == done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_command_of_a_plugin_does_its_work_and_is_refused_like_ours(ready: Desk):
    path = path_of(SAMPLE)
    done = command("notebooks", "list", "--json", cwd=ready.folder, PYTHONPATH=path, HOME_TOKEN="x")
    assert (0, {"notebooks": ["red"]}) == (done.code, json.loads(done.out)), done.err
    done = command(
        "notebooks", "list", "--json", "--config", "nowhere", cwd=ready.folder, PYTHONPATH=path, HOME_TOKEN="x"
    )
    assert (2, "configInvalid") == (done.code, json.loads(done.out)["error"]["code"])
    assert 2 == command("notebooks", "list", cwd=ready.folder).code  # not installed


@pytest.mark.slow
def test_an_unknown_command_is_no_crash(tmp_path: Path):
    done = command("notebook", cwd=tmp_path, PYTHONPATH=path_of(SAMPLE))
    assert 2 == done.code
    assert "No such command 'notebook'" in done.err


PLUGIN = "from oauthbroker.plugins import Plugin, PluginCommand\nPLUGIN = Plugin(name='{plugin}', commands={{'{command}': PluginCommand(help='Take it.', app='{app}')}})\n"
WRONG = {
    "a name of ours": (PLUGIN.format(plugin="other", command="check", app="other:app"), "The command check of the plug-in other is left out: oauthbroker has one itself."),
    "a name of another plug-in": (PLUGIN.format(plugin="other", command="notebooks", app="other:app"), "The command notebooks is left out: the plug-ins other and sample both have it."),
    "no declaration": ("raise RuntimeError('planted')", "the plug-in other of other-plugin cannot be imported: RuntimeError at {place}:1. Its commands are left out."),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG)
def test_a_plugin_whose_command_cannot_be_taken_is_reported_and_harms_no_other(tmp_path: Path, row: tuple[str, str]):
    text, reported = row
    site = distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)
    done = command("--help", cwd=tmp_path, PYTHONPATH=path_of(SAMPLE, site))
    reported = reported.replace("{place}", str(site / "other.py"))
    assert (0, [reported]) == (done.code, done.err.splitlines())
    assert all(f"{name} " in done.out for name in COMMANDS)
    assert "Check a configuration" in done.out
    assert ("Plug-in sample" in done.out) is ("notebooks is left out" not in reported)
    assert "planted" not in done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "reported"),
    [
        (
            "other:nothing",
            "the plug-in other cannot import other:nothing: AttributeError: module 'other' has no attribute 'nothing'. Update its package.",
        ),
        (
            "nowhere:app",
            "the plug-in other cannot import nowhere:app: ModuleNotFoundError: No module named 'nowhere'. Update its package.",
        ),
        ("other:PLUGIN", "The command take of the plug-in other is not a typer.Typer. Update its package."),
    ],
)
def test_a_command_that_cannot_be_imported_is_refused_when_it_is_called(tmp_path: Path, app: str, reported: str):
    text = PLUGIN.format(plugin="other", command="take", app=app)
    site = distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)
    done = command("take", cwd=tmp_path, PYTHONPATH=path_of(site))
    assert (2, "", reported) == (done.code, done.out, done.err.strip())
    done = command("take", "--json", cwd=tmp_path, PYTHONPATH=path_of(site))
    assert {"code": "refused", "message": reported} == json.loads(done.out)["error"]
    assert 0 == command("--help", cwd=tmp_path, PYTHONPATH=path_of(site)).code


@pytest.mark.slow
def test_a_command_of_a_plugin_that_breaks_is_named_with_its_line_and_is_no_fault_of_ours(tmp_path: Path):
    text = PLUGIN.format(plugin="other", command="take", app="other_commands:app")
    commands = "import typer\napp = typer.Typer()\n@app.command()\ndef take():\n    raise RuntimeError('canary')\n"
    made = {"other": text, "other_commands": commands}
    site = distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, **made)
    done = command("take", cwd=tmp_path, PYTHONPATH=path_of(site))
    assert f"The plug-in other failed: RuntimeError at {site / 'other_commands.py'}:5. " in done.err
    assert "Internal error" not in done.err
    assert "canary" not in done.err


# check and doctor


@pytest.mark.parametrize("function", ["open", "erase", "secret_places"])
def test_check_imports_what_a_broker_would_run_of_a_named_plugin(desk: Desk, tmp_path: Path, function: str):
    desk.write("broker", f"{HEAD}kind: Broker\nmetadata: {{name: broker}}\nspec: {{plugins: [other]}}\n")
    text = f"from oauthbroker.plugins import Plugin\nPLUGIN = Plugin(name='other', {function}='other:nothing')\n"
    with on_path(distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other=text)):
        done = desk.type("check")
    assert 2 == done.code
    assert "the plug-in other cannot import other:nothing: AttributeError" in done.err.replace("The", "the")


def test_check_lists_the_resources_of_plugins_and_their_needs(ready: Desk):
    with on_path(SAMPLE):
        reported = json.loads(ready.type("check", "--json").out)
        assert {"sample": ["Notebook/red"]} == reported["plugins"]
        assert "environment HOME_TOKEN" in reported["needs"]
        assert (True, []) == (reported["ok"], reported["ignored"])
        plain = ready.type("check")
    assert ["sample", "Notebook/red"] in [line.split() for line in plain.out.splitlines()]


def test_check_without_the_package_says_what_to_install(ready: Desk):
    done = ready.type("check")
    assert 2 == done.code
    line = (ready.folder / "config" / "broker.yaml").read_text("utf-8").count("\n")
    assert (
        f"broker.yaml:{line}:13 spec.plugins[0]: No plug-in of this name is installed. "
        "Name an installed one (flowtools, gateway, integrations, mcp, tools), or install the package that has it."
    ) in done.err


def test_doctor_names_a_value_of_a_plugin_that_is_missing(ready: Desk, monkeypatch: pytest.MonkeyPatch):
    def missing() -> list[dict[str, str]]:
        reported: dict[str, Any] = json.loads(ready.type("doctor", "--offline", "--json").out)
        return [each for each in reported["checks"] if each["about"] == "Notebook/red"]

    with on_path(SAMPLE):
        (found,) = missing()
        assert ("warning", "Environment HOME_TOKEN is not set.") == (found["severity"], found["text"])
        monkeypatch.setenv("HOME_TOKEN", "x")
        assert [] == missing()


# a running broker


async def test_a_running_broker_has_the_resources_of_its_plugins_and_takes_new_ones(ready: Desk):
    env = {"HOME_TOKEN": "first"}
    with on_path(SAMPLE):
        async with open_broker("config", env=env) as broker:
            red = broker.bundle.plugins["sample"].of("Notebook")["red"]
            assert [("servers", "home", "token")] == list(red.secrets)
            assert "first" == red.secrets["servers", "home", "token"].reveal()
            assert "first" not in repr(red) + str(broker.bundle)

            ready.write("blue", NOTEBOOK.replace("name: red", "name: blue"))
            await broker.reload()
            assert {"red", "blue"} == set(broker.bundle.plugins["sample"].of("Notebook"))

            ready.write("blue", NOTEBOOK.replace("name: red", "name: blue").replace("https:", "http:"))
            with pytest.raises(ConfigInvalidError) as refused:
                await broker.reload()
            assert ["spec.servers.?.url"] == [each.path for each in refused.value.problems]
            assert {"red", "blue"} == set(broker.bundle.plugins["sample"].of("Notebook"))


async def test_a_broker_does_not_start_without_a_value_of_a_plugin(ready: Desk):
    with on_path(SAMPLE), pytest.raises(ConfigInvalidError) as refused:
        async with open_broker("config", env={}):
            pass
    assert ["environment HOME_TOKEN is not set"] == [each.what for each in refused.value.problems]


async def test_plugins_are_named_at_start_only(ready: Desk):
    broker_file = ready.folder / "config" / "broker.yaml"
    with on_path(SAMPLE):
        async with open_broker("config", env={"HOME_TOKEN": "x"}) as broker:
            broker_file.write_text(broker_file.read_text("utf-8").replace("  plugins: [sample]\n", ""), "utf-8")
            with pytest.raises(ConfigInvalidError) as refused:
                await broker.reload()
    assert ["spec.plugins"] == [each.path for each in refused.value.problems]
