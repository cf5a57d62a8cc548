"""`oauthbroker flow run` and `flow runs`: a deployed tool from its deployment to its end, also across a consent."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.flowtools.serving.kinds import GROUPS
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, Desk
from tests.kit.flow_bundle import bundle
from tests.kit.running_broker import ALICE
from tests.kit.smtp import mail_stand_in
from tests.unit.flowtools.kit import chain, written
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, INPUT, LOG, Remembering, log

pytestmark = [pytest.mark.rule("flow-run"), pytest.mark.slow]
USES = ("--entity", "log.json", "--sandbox", "--mail", "smtp://127.0.0.1:9?from=shop@example.com")
PAY = ("payment", {"provider": "stripe", "fields": {"amount": "input.n"}})


@pytest.fixture
def desk(desk: Desk, idp: IdentityProvider) -> Desk:
    """A desk whose broker keeps the versions of flow tools."""
    desk.ready_to_serve(idp)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + "  plugins: [flowtools]\n")
    return desk


def deploy(desk: Desk, nodes: dict[str, Any], *more_words: str, **more: Any) -> None:
    """Deploy a tool, its yellow findings acknowledged, and write the entity that it uses."""
    file = desk.folder / "tool.json"
    document = written(nodes, chain(*nodes), next(iter(nodes)), **{"input": INPUT, **more})
    file.write_text(json.dumps(document), "utf-8")
    (desk.folder / "log.json").write_text(json.dumps(LOG), "utf-8")
    assert 0 == desk.type("flow", "acknowledge", "tool.json", "--by", "ada").code
    assert 0 == desk.type("flow", "deploy", "tool.json", *USES, *more_words).code


def typed(desk: Desk, *words: str, data: Any = None) -> tuple[int, Any]:
    """Run the tool with JSON, and return the status and the document that it printed."""
    given = json.dumps({"id": "a"} if data is None else data)
    done = desk.type("flow", "run", "tool", "--entity", "log.json", "--input", "-", "--json", *words, stdin=given)
    return done.code, json.loads(done.out)


def test_a_deployed_tool_runs_and_its_run_is_listed_with_its_steps(desk: Desk) -> None:
    deploy(desk, {"a": BEGIN, "b": log("one"), "c": ("assert", {"expression": "input.id == 'a'", "message": "Not a"})})
    code, refused = typed(desk)
    assert (2, "requestInvalid") == (code, refused["error"]["code"]), "there is no table yet"
    code, reported = typed(desk, "--apply", "--as", "ada")
    assert (0, "succeeded", "one") == (code, reported["state"], reported["output"]["text"])
    assert (0, reported["run"]) == ((again := typed(desk, "--as", "ada"))[0], again[1]["run"]), (
        "the same key, the same run"
    )
    code, failed = typed(desk, "--as", "ada", data={"id": "b"})
    assert (1, "failed", "assertFailed", "Not a") == (code, failed["state"], failed["code"], failed["message"])
    code, invalid = typed(desk, data={"id": 1})
    assert (1, "inputInvalid", None) == (code, invalid["code"], invalid["run"])
    rows = json.loads(desk.type("flow", "runs", "--json").out)["runs"]
    assert [("failed", "ada"), ("succeeded", "ada")] == [(row["state"], row["actor"]) for row in rows]
    (row,) = json.loads(desk.type("flow", "runs", reported["run"], "--json").out)["runs"]
    assert [("a", "done", 0), ("b", "done", 1), ("c", "done", 0)] == [
        (step["node"], step["state"], step["rows"]) for step in row["steps"]
    ]
    shown = desk.type("flow", "runs", "--state", "failed").out
    assert (True, 1) == ("tool@1  failed" in shown and "assertFailed Not a" in shown, len(shown.splitlines()))
    assert "" == desk.type("flow", "runs", "--tool", "other").out
    assert 2 == desk.type("flow", "runs", "none").code


@pytest.mark.rule("001-withdraw")
def test_a_withdrawn_version_takes_no_new_run_and_a_run_that_has_begun_is_resumed(desk: Desk) -> None:
    never = ("assert", {"expression": "input.id == 'a'", "message": "Not a"})
    deploy(desk, {"a": BEGIN, "b": log("one"), "c": never})
    reported = typed(desk, "--apply", "--as", "ada")[1]
    done = desk.type("flow", "withdraw", "tool", "1", "--by", "ada", "--serving")
    assert (0, True) == (done.code, done.out.startswith("tool version 1: withdrawn by ada at "))
    code, refused = typed(desk, data={"id": "c"})
    assert (1, "versionWithdrawn") == (code, refused["code"])
    assert (0, "succeeded") == ((again := typed(desk, "--resume", reported["run"]))[0], again[1]["state"])


def test_payments_are_played_only_when_that_is_asked_for(desk: Desk) -> None:
    deploy(desk, {"p": PAY})
    done = desk.type("flow", "run", "tool", "--entity", "log.json", "--apply")
    assert (1, True) == (done.code, "No configured provider of payments" in done.out)
    code, reported = typed(desk, "--sandbox", "--as", "ada", data={"id": "a", "n": 3})
    assert (0, "succeeded", "succeeded") == (code, reported["state"], reported["output"]["status"])


@pytest.mark.rule("000-types-mail")
def test_an_email_goes_through_the_named_server_and_its_password_is_no_option(desk: Desk) -> None:
    deploy(desk, {"m": ("email", {"to": "'bob@example.com'", "subject": "'Paid'", "body": "input.id"})})
    done = desk.type("flow", "run", "tool", "--entity", "log.json", "--apply")
    assert (1, True) == (done.code, "mail is not configured" in done.out)
    with mail_stand_in() as server:
        code, reported = typed(desk, "--mail", f"smtp://127.0.0.1:{server.port}?from=shop@example.com")
    assert (0, 1, "succeeded") == (code, len(server.messages), reported["state"])
    code, refused = typed(desk, "--mail", "smtps://shop:secret@mail.example.com?from=shop@example.com")
    assert (2, "requestInvalid", False) == (code, refused["error"]["code"], "secret" in str(refused))


@pytest.mark.rule("policy-approval")
def test_a_stopped_run_is_approved_or_declined_on_the_record(desk: Desk) -> None:
    limit = {"name": "limit", "version": 1, "description": "d", "type": "custom", "condition": "amount > 5"}
    (desk.folder / "limit.json").write_text(
        json.dumps({**limit, "action": "escalate", "message": "too large"}), "utf-8"
    )
    document = written({"a": BEGIN, "b": log("one")}, chain("a", "b"), "a", input=INPUT, policies=["limit"])
    (desk.folder / "tool.json").write_text(json.dumps(document), "utf-8")
    (desk.folder / "log.json").write_text(json.dumps(LOG), "utf-8")
    assert 0 == desk.type("flow", "deploy", "tool.json", "--policy", "limit.json", *USES).code
    for key, command, end in (("a", "approve", "succeeded"), ("b", "decline", "failed")):
        _, reported = typed(desk, "--apply", "--as", "eve", data={"id": key, "amount": 6})
        assert "escalated" == reported["state"]
        done = desk.type("flow", command, reported["run"], "--by", "Ada", "--json")
        decided, state = ("approved", "running") if command == "approve" else ("declined", "failed")
        assert {"run": reported["run"], "decision": decided, "state": state} == json.loads(done.out)
        assert 2 == desk.type("flow", command, reported["run"], "--by", "Bob").code
        assert end == typed(desk, "--resume", reported["run"])[1]["state"]
        shown = desk.type("flow", "runs", reported["run"]).out
        assert f"policy limit: {decided} by Ada (account " in shown


@pytest.mark.rule("flow-plan")
def test_a_plan_shows_the_changes_and_what_would_be_lost_and_changes_nothing(desk: Desk) -> None:
    deploy(desk, {"a": BEGIN, "b": log("one")})
    for _ in range(2):
        done = desk.type("flow", "plan", "log.json")
        assert (0, "Log: create the table\n") == (done.code, done.out)
    assert 0 == typed(desk, "--apply")[0]
    assert (0, "the tables fit the entities\n") == ((done := desk.type("flow", "plan", "log.json")).code, done.out)
    (desk.folder / "log.json").write_text(json.dumps({**LOG, "fields": {"size": {"type": "number"}}}), "utf-8")
    done = desk.type("flow", "plan", "log.json", "--json")
    assert 1 == done.code
    assert {"what": "Log: remove the field text", "refused": "rows have values in it"} in json.loads(done.out)[
        "changes"
    ]


@pytest.mark.parametrize("url", ["mysql://h/d", "sqlite:///no/such/folder/x.db", "nonsense"])
def test_a_database_that_cannot_be_used_is_refused_in_a_sentence(desk: Desk, url: str) -> None:
    deploy(desk, {"t": ("transform", {"expression": "1"})})
    for words in (("runs",), ("run", "tool", "--entity", "log.json")):
        done = desk.type("flow", *words, "--database", url)
        assert (2, 1, False) == (done.code, len(done.err.splitlines()), "Traceback" in done.err)


@pytest.mark.rule("run-waits", "000-types-http")
def test_a_run_waits_with_status_75_and_a_link_and_goes_on_after_the_consent(
    desk: Desk, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "oauthbroker.flowtools.specification.spec.is_public_url", lambda _: True
    )  # the API is on loopback
    config = Path("config/mail.yaml")
    host = idp.issuer
    config.write_text(config.read_text("utf-8") + f'  api: {{hosts: ["{host}"], methods: [GET]}}\n', "utf-8")
    request = {"url": f"{idp.issuer}/api/messages", "oauthAppRef": "OAuthApp/mail"}
    deploy(desk, {"a": BEGIN, "b": log("one"), "c": COMMIT, "r": ("httpRequest", request)}, "--config", "config")
    words = ("--config", "config", "--apply", "--as", "ada", "--user", ALICE)
    code, reported = typed(desk, *words)
    assert (75, "waiting") == (code, reported["state"])
    assert reported["authorization"]["authorizationUrl"].startswith(desk.base)
    shown = desk.type("flow", "run", "tool", "--entity", "log.json", "--config", "config", "--resume", reported["run"])
    assert (75, True) == (shown.code, reported["authorization"]["authorizationUrl"] in shown.err)
    desk.connect("alice", idp)
    code, ended = typed(desk, *words, "--resume", reported["run"])
    assert (0, "succeeded", 200) == (code, ended["state"], ended["output"]["status"])
    assert 1 == idp.count("resource")


@pytest.mark.rule("000-types-providers", "000-deploy-ready")
def test_the_service_of_a_configuration_brings_entities_and_adapters_of_packages(
    desk: Desk, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Remembering({"paymentId": "x1"}, takes_keys=True)
    given: list[Any] = []

    def made(settings: Any, secret: Any) -> Remembering:
        given.append((settings, secret.reveal()))
        return shop

    point = metadata.EntryPoint("acme", "acme:shop", GROUPS["payments"])
    vars(point)["load"] = lambda: made
    plugins = metadata.entry_points(group="oauthbroker.plugins")
    monkeypatch.setattr(metadata, "entry_points", metadata.EntryPoints([*plugins, point]).select)
    monkeypatch.setenv("SHOP_SECRET", "canary-shop")
    secret = {"valueFrom": {"env": "SHOP_SECRET"}}
    bundle(
        desk.folder / "config",
        payments={"stripe": {"adapter": "acme", "settings": {"account": "a1"}, "secret": secret}},
        mail="smtp://127.0.0.1:9?from=shop@example.com",
    )
    nodes = {"a": BEGIN, "b": log("one"), "c": COMMIT, "p": PAY}
    file = desk.folder / "tool.json"
    file.write_text(json.dumps(written(nodes, chain(*nodes), "a", input=INPUT)), "utf-8")
    assert 0 == desk.type("flow", "acknowledge", "tool.json", "--by", "ada").code
    assert 0 == desk.type("flow", "deploy", "tool.json", "--config", "config").code
    words = ("--config", "config", "--apply", "--input", "-", "--json")
    done = desk.type("flow", "run", "tool", *words, stdin=json.dumps({"id": "a", "n": 3}))
    assert (0, {"paymentId": "x1"}) == (done.code, json.loads(done.out)["output"])
    assert [({"account": "a1"}, "canary-shop")] * 2 == given
    assert [{"amount": 3.0}] == [each.fields for each in shop.sent]


def test_a_call_that_is_refused_before_its_run_says_that_none_began(desk: Desk) -> None:
    deploy(desk, {"a": BEGIN, "b": log("one")}, auth={"required": True, "allowedRoles": ["staff"]})
    call = ("flow", "run", "tool", "--entity", "log.json", "--input", "-", "--apply", "--as", "bob")
    done = desk.type(*call, stdin='{"id": "a"}')
    assert (1, "no run began: failed: forbidden") == (done.code, done.err.partition(" the tool")[0])
