"""The gateway's faces beside Python: the route of a running broker and the command. pyproject.toml installs its plug-in."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from oauthbroker.cli import run
from oauthbroker.gateway import PLUGIN, commands, rulebook
from oauthbroker.gateway.spec import KINDS
from oauthbroker.plugins import PluginResource, PluginResources
from oauthbroker.plugins.discovery import declared
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, user_app
from tests.story.api.kit import Callers
from tests.unit.config.bundles import BROKER
from tests.unit.gateway.kit import explain

PATH = "/v1/gateway/validate"
CART = {"action_type": "ADD_TO_CART", "product_id": "prod_1", "quantity": 2}


def resources(**specs: Any) -> PluginResources:
    return PluginResources(
        tuple(PluginResource("ActionSchema", name, KINDS[0].model.model_validate(spec)) for name, spec in specs.items())
    )


HOTEL = {"actions": {"BOOK_ROOM": {"requiredFields": ["room"]}}}
SHOP = {"actions": {"PAY": {"jsonSchema": {"required": ["total"]}}}}


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    plugins = {"gateway": resources(hotel=HOTEL)}
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, plugins=plugins) as harness:
        yield harness


def test_the_project_declares_the_plugin() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))["project"]
    assert "oauthbroker.gateway:PLUGIN" == project["entry-points"]["oauthbroker.plugins"]["gateway"]
    assert declared("gateway") is PLUGIN


# the route


@pytest.mark.rule("gateway.procedure.1-2", "gateway.procedure.5-1", "gateway.inputs-2")
async def test_the_route_answers_as_python_does(harness: Harness) -> None:
    api = await Callers.of(harness)
    tool = await api.turn(tools={})
    body: dict[str, Any] = {
        "action_requests": [CART, {"action_type": "X"}],
        "available_products": ["prod_2"],
        "user_context": {"is_logged_in": True, "user_id": "u1"},
    }
    for caller in (api.runtime, tool):
        answer = await caller.post(PATH, body)
        assert (200, explain(**body)) == (answer.status, answer.json())
    given: dict[str, Any] = {
        "action_requests": [CART],
        "action_schema": {"ADD_TO_CART": {"required_fields": ["price"]}},
    }
    assert explain(**given) == (await api.runtime.post(PATH, given)).json()
    nulls = {"action_schema": None, "user_context": None, "available_products": None, "available_coupons": None}
    answer = (await api.runtime.post(PATH, {**nulls, "action_requests": [CART]})).json()
    assert explain([CART]) == answer
    assert [CART] == answer["valid_actions"]
    assert 403 == (await api.operator.post(PATH, body)).status


async def test_the_route_takes_the_schemas_of_the_configuration_by_name(harness: Harness) -> None:
    api = await Callers.of(harness)
    booking = {"action_type": "BOOK_ROOM"}
    body = {"action_requests": [booking], "action_schema": "ActionSchema/hotel"}
    assert explain([booking], rulebook(HOTEL)) == (await api.runtime.post(PATH, body)).json()
    for unknown, hint in {"hotel": "Did", "ActionSchema/hotl": "Did", "OAuthApp/mail": "Name", "": "Name"}.items():
        answer = await api.runtime.post(PATH, {**body, "action_schema": unknown})
        assert (400, "requestInvalid") == (answer.status, answer.code)
        said = answer.json()
        assert [{"pointer": "/action_schema", "problem": "value"}] == said["errors"]
        hints = {"Did": "Did you mean ActionSchema/hotel?", "Name": "Name one as ActionSchema/name."}
        assert said["detail"].endswith(f"no ActionSchema of this name. {hints[hint]}")


@pytest.mark.parametrize("malformed", [5, None, [], {"requird_fields": []}, {"field_types": {"quantity": "strin"}}])
async def test_a_malformed_schema_rejects_its_own_type_alone_as_in_python(harness: Harness, malformed: Any) -> None:
    api = await Callers.of(harness)
    given: dict[str, Any] = {
        "action_requests": [CART, {"action_type": "GET_RECOMMENDATIONS"}],
        "action_schema": {"ADD_TO_CART": malformed, "GET_RECOMMENDATIONS": {"required_fields": []}},
    }
    answer = await api.runtime.post(PATH, given)
    assert (200, explain(**given)) == (answer.status, answer.json())
    assert ["SCHEMA_NOT_FOUND"] == [each["tag"] for each in answer.json()["details"]]
    assert 1 == answer.json()["validation_summary"]["valid_count"]


async def test_a_schema_of_the_name_default_replaces_the_nine_actions_and_follows_a_reload(harness: Harness) -> None:
    plugin = harness.broker.bundle.plugins["gateway"]
    assert plugin.of("ActionSchema").keys() == {"hotel"}
    api = await Callers.of(harness)
    payment = {"action_requests": [{"action_type": "PAY"}]}
    assert "UNKNOWN_ACTION_TYPE" == (await api.runtime.post(PATH, payment)).json()["details"][0]["tag"]
    await harness.broker.reload(replace(harness.broker.bundle, plugins={"gateway": resources(default=SHOP)}))
    assert "MISSING_REQUIRED_FIELD" == (await api.runtime.post(PATH, payment)).json()["details"][0]["tag"]


@pytest.mark.rule("gateway.procedure.1-1")
@pytest.mark.parametrize(
    "body",
    [{}, {"action_requests": []}, {"action_requests": CART}, {"action_requests": [0] * 1001}, {"action_requests": [CART], "more": 1},
     {"action_requests": None}, {"action_requests": {"0": CART}}, {"action_requests": json.dumps([CART])}, {"action_requests": [CART], "available_products": "prod_1"},
     {"action_requests": [CART], "user_context": []}, {"action_requests": [CART], "action_schema": []},
     {"action_requests": [CART], "action_schema": {"ADD_TO_CART": {"json_schema": {}}}}],
)  # fmt: skip
async def test_the_route_refuses_other_bodies(harness: Harness, body: Any) -> None:
    """JSON Schema is for operators: the cost of one does not show in its size."""
    api = await Callers.of(harness)
    answer = await api.runtime.post(PATH, body)
    assert (400, "requestInvalid") == (answer.status, answer.code)


@pytest.mark.parametrize(
    "body",
    [b'{"action_requests":[{"action_type":"A","action_type":"B"}]}', b'{"action_requests":[{"action_type":"\\ud800"}]}',
     b'{"action_requests":[{"action_type":"A","price":NaN}]}', b'{"action_requests":[' + b"[" * 40 + b"]" * 40 + b"]}"],
)  # fmt: skip
async def test_the_route_reads_strict_json_only(harness: Harness, body: bytes) -> None:
    api = await Callers.of(harness)
    answer = await api.runtime.send("POST", PATH, body=body)
    assert (400, "requestInvalid") == (answer.status, answer.code)


# the command


def typed(monkeypatch: pytest.MonkeyPatch, *words: str, stdin: str | bytes = b"") -> int:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))
    return run(["gateway", "validate", *words])


def test_the_command_reads_a_file_or_stdin_and_its_status_tells_of_rejected_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "actions.json"
    file.write_text(json.dumps([CART, {"action_type": "X\n"}, {**CART, "quantity": 10}]), "utf-8")
    assert 1 == typed(monkeypatch, str(file))
    lines = capsys.readouterr().out.splitlines()
    assert ["0 valid", "2 valid Large quantity detected"] == lines[::2]
    assert lines[1].startswith("1 rejected Unknown action_type: X�. Allowed types: ADD_TO_CART, ")
    assert 0 == typed(monkeypatch, stdin=json.dumps([CART]))
    inputs: dict[str, Any] = {"action_requests": [CART], "available_products": []}
    capsys.readouterr()
    for words in (["-", "--json"], ["--json"]):
        assert 1 == typed(monkeypatch, *words, stdin=json.dumps(inputs))
        assert explain(**inputs) == json.loads(capsys.readouterr().out)


def test_the_command_takes_an_action_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hotel.yaml").write_text(yaml.safe_dump(HEADER | {"spec": HOTEL}), "utf-8")
    booking = {"action_type": "BOOK_ROOM", "room": 7}
    assert 0 == typed(monkeypatch, "--schema", str(tmp_path / "hotel.yaml"), "--json", stdin=json.dumps([booking]))
    assert [booking] == json.loads(capsys.readouterr().out)["valid_actions"]


HEADER = {"apiVersion": "agents.example.io/v1alpha1", "kind": "ActionSchema", "metadata": {"name": "hotel"}}
HOSTILE: list[tuple[str | bytes, str]] = [
    ("{", "not strict JSON: line 1, column 2"),
    (b"\xff", "not strict JSON: no UTF-8"),
    ('[{"action_type": "ADD_TO_CART", "action_type": "X"}]', "not strict JSON: a name twice"),
    ("[" * 100_000, "not strict JSON: more than 32 levels"),
    ("[" * 40 + "]" * 40, "not strict JSON: more than 32 levels"),
    ("[" + "9" * 5000 + "]", "not strict JSON: a number is too long"),
    ('[{"price": NaN}]', "not strict JSON: NaN or an infinity"),
    ('[{"price": -Infinity}]', "not strict JSON: NaN or an infinity"),
    ('[{"price": 1e400}]', "not strict JSON: a number out of range"),
    ('[{"query": "\\ud800"}]', "not strict JSON: a lone surrogate"),
    ("[]", "action_requests must be a non-empty array"),
    ("3", "action_requests must be a non-empty array"),
    ("{}", "action_requests must be a non-empty array"),
    ('{"action_requests": [{}], "user_contxt": 1}', "the input has the unknown user_contxt; its members are "),
    ('{"action_requests": [{}], "action_schema": "ActionSchema/hotel"}', "action_schema is a name: name its file with --schema"),
]  # fmt: skip


@pytest.mark.rule("gateway.procedure.1-1")
@pytest.mark.parametrize(("text", "note"), HOSTILE, ids=[str(note) for _, note in HOSTILE])
def test_the_command_refuses_other_input_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | bytes, note: str
) -> None:
    assert 2 == typed(monkeypatch, "--json", stdin=text)
    error = json.loads(capsys.readouterr().out)["error"]
    assert "requestInvalid" == error["code"]
    assert error["note"].startswith(note)


def test_the_command_says_which_file_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, why in (("missing.json", "No such file"), (".", "Is a directory")):
        assert 2 == typed(monkeypatch, file, "--json")
        note = json.loads(capsys.readouterr().out)["error"]["note"]
        assert (True, True) == (note.startswith(f"{file}: "), why in note)


@pytest.mark.parametrize("count", [0, 2])
def test_the_command_counts_the_action_schemas_of_a_file_that_has_not_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    documents = [HEADER | {"metadata": {"name": f"hotel{at}"}, "spec": HOTEL} for at in range(count)]
    (tmp_path / "some.yaml").write_text(yaml.safe_dump_all(documents), "utf-8")
    assert 2 == typed(monkeypatch, "--schema", str(tmp_path / "some.yaml"), "--json", stdin=json.dumps([CART]))
    note = f"--schema has {count} resources of the kind ActionSchema, and has to have one"
    assert note == json.loads(capsys.readouterr().out)["error"]["note"]


@pytest.mark.parametrize(("size", "status"), [(64, 0), (65, 2)])
def test_the_command_checks_no_part_of_an_input_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: int, status: int
) -> None:
    """Its beginning may be JSON as a whole, and a schema without its end has fewer rules."""
    monkeypatch.setattr(commands, "MOST_BYTES", 64)
    text = '[{"action_type": "GET_RECOMMENDATIONS"}]'.ljust(64)
    assert status == typed(monkeypatch, "--json", stdin=text[:64] + "x" * (size - 64))
    if status:
        error = json.loads(capsys.readouterr().out)["error"]
        assert ("requestTooLarge", "the input has more than 0 MiB") == (error["code"], error["note"])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "spec: {}", "a: [", "kind: ActionSchema", "{header}spec: {actions: {A: {login: 3}}}", "{header}spec: {}",
     "{header}spec: {actions: {ADD_TO_CART: {login: true, login: false}}}", "{one}---\n{one}", "{broker}"],
)  # fmt: skip
def test_the_command_refuses_a_wrong_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    header = yaml.safe_dump(HEADER)
    texts = {"{header}": header, "{one}": header + yaml.safe_dump({"spec": HOTEL}), "{broker}": BROKER}
    for name, each in texts.items():
        text = text.replace(name, each)
    (tmp_path / "wrong.yaml").write_text(text, "utf-8")
    for file in ("wrong.yaml", "missing.yaml"):
        assert 2 == typed(monkeypatch, "--schema", str(tmp_path / file), stdin=json.dumps([CART]))
    assert "" == capsys.readouterr().out


def test_the_command_names_the_place_of_each_problem_of_a_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hotel.yaml"
    lines = [
        "spec:",
        "  actions:",
        "    BOOK_ROOM: {login: 3}",
        "  rules:",
        "    - {field: a, op: over, value: 1, text: b}",
    ]
    file.write_text("\n".join([yaml.safe_dump(HEADER).rstrip(), *lines]), "utf-8")
    assert 2 == typed(monkeypatch, "--schema", str(file), stdin=json.dumps([CART]))
    first, second, count = capsys.readouterr().err.splitlines()
    assert [f"{file}:7:24", f"{file}:9:22"] == [line.partition(" ")[0] for line in (first, second)]
    assert "2 problems" in count
