"""Resources of other programs share a bundle: they are left alone and listed; near misses of ours are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load, load_settings
from oauthbroker.core.spelling import is_slip, is_slip_of_field
from tests.unit.config.bundles import APP, BROKER, HEAD, TOOL, edited, problems_in, write

EXTENSION = HEAD + "kind: Extension\nmetadata: {name: weather}\nspec:\n  entry: ./weather.ts\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: @}\n"
ANCHORS = """apiVersion: apps/v1
kind: Deployment
metadata: &meta {name: web, labels: &labels {app: web}}
spec:
  template: {metadata: {labels: *labels, <<: *meta}}
  since: !!timestamp 2026-01-01
  1: [yes, 0123]
  twice: 1
  twice: 2
"""
FOREIGN = {
    "a kind of another group": ANCHORS,
    "a tool of another group": "apiVersion: tekton.dev/v1\nkind: Tool\nmetadata: {name: x}\nspec: {auth: [1]}\n",
    "an app of another group": "apiVersion: acme.example/v1alpha1\nkind: OAuthApp\nmetadata: {name: x}\nspec: []\n",
    "a broker of another group": "apiVersion: eventing.knative.dev/v1\nkind: Broker\nspec: {listen: {port: 1}}\n",
    "a group that ends as ours": "apiVersion: agents.acme.io/v1alpha1\nkind: Tool\nspec: {auth: 1}\n",
    "a secret of another group": "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {a: b}\n",
    "a kind that names itself by an alias": "x: &kind Widget\napiVersion: acme.example/v1\nkind: *kind\n",
    "a kind named by a tag": "apiVersion: acme.example/v1\nkind: !!str Widget\n",
    "a tagged root": "!!map\napiVersion: acme.example/v1\nkind: Widget\n",
    "no kind of another group": "apiVersion: acme.example/v1\nspec: {a: &a 1, b: *a}\n",
    "another kind of our group": HEAD + "kind: Workspace\nspec: {a: &a {b: 1}, c: *a}\n",
    "a kind of the runtime": HEAD + "kind: Agent\nmetadata: {name: &n planner}\nspec: {also: *n, tools: []}\n",
    "a kind that no group is said of": "kind: Widget\nspec: {a: &a 1, b: *a}\n",
    "a kind like ours of our group": HEAD + "kind: Toolset\nspec: {}\n",
    "a kind of the runtime with a misspelt group": "apiVersion: goondan.io/v1\nkind: Agent\nspec: {}\n",
    "an extension without auth": EXTENSION + "  config: &c {a: 1}\n  again: *c\n",
    "an extension with an author": EXTENSION + "  author: {name: x}\n",
    "a level deeper than ours may be": "apiVersion: v1\nkind: Widget\nspec: " + "[" * 99 + "]" * 99 + "\n",
    "two of one name": CONFIG_MAP.replace("@", "one") + "---\n" + CONFIG_MAP.replace("@", "two"),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_resource_of_another_program_is_left_alone_and_listed(text: str, tmp_path: Path):
    loaded = load(write(tmp_path / "b", app=APP, broker=BROKER, other=text, tool=TOOL))
    assert {"acme"} == set(loaded.apps)
    assert {"Tool/hammer", "Tool/hammer:hit", "Tool/hammer:hold"} == set(loaded.tools)
    assert text.count("apiVersion:") + ("apiVersion" not in text) == len(loaded.ignored)
    assert {str(tmp_path / "b" / "other.yaml")} == {each.place.file for each in loaded.ignored}


def test_a_skipped_resource_is_listed_with_its_names_and_its_place(tmp_path: Path):
    folder = write(tmp_path / "b", other=ANCHORS + "---\n" + HEAD + "kind: Model\nmetadata: {name: 's3 cret'}\n")
    first, second = load(folder).ignored
    file = str(folder / "other.yaml")
    assert {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1", "file": file, "line": 1} == first.to_json()
    assert ("Model", "?", 11) == (second.kind, second.name, second.place.line)


def test_a_fault_of_our_document_is_reported_beside_a_foreign_one_of_the_same_file(tmp_path: Path):
    folder = write(tmp_path / "b", all=ANCHORS + "---\n" + edited(APP, ("provider: acme", "provider: &p acme")))
    [problem] = problems_in(folder)
    assert ("spec.provider", "YAML anchors are not read") == (problem.path, problem.what)


def test_faults_before_a_yaml_mistake_are_reported_too(tmp_path: Path):
    broken = edited(APP, ("provider: acme", "provider: &p acme")) + "  quirks: [\n"
    assert ["this is not well-formed YAML", "YAML anchors are not read"] == [
        it.what for it in problems_in(write(tmp_path / "b", app=broken))
    ], "what keeps a file from being read comes first"


def test_the_settings_of_another_programs_broker_are_not_ours(tmp_path: Path):
    folder = write(tmp_path / "b", a=FOREIGN["a broker of another group"], b=BROKER, c=APP + "  wrong: 1\n")
    assert 8420 == load_settings(folder).listen_port


@pytest.mark.parametrize("kind", ["Extension", "Connection"])
def test_auth_of_an_extension_or_a_connection_is_honoured_like_a_tools(kind: str, tmp_path: Path):
    auth = "  auth: {oauthAppRef: OAuthApp/acme, scopes: [read]}\n"
    text = edited(EXTENSION, ("kind: Extension", f"kind: {kind}")) + auth
    loaded = load(write(tmp_path / "b", app=APP, part=text))
    [auth_of] = loaded.tools[f"{kind}/weather"]
    assert ("acme", ("read",)) == (auth_of.app, auth_of.scopes)
    assert () == loaded.ignored


WRONG_AUTHS = {
    "an unknown app": ("auth: {oauthAppRef: OAuthApp/acne}", "spec.auth.oauthAppRef", "the nearest known one"),
    "no app": ("auth: {scopes: [read]}", "spec.auth.oauthAppRef", "missing"),
    "a scope beyond the app": ("auth: {oauthAppRef: OAuthApp/acme, scopes: [all]}", "spec.auth.scopes[0]", "remove it"),
    "a typo": ("auht: {oauthAppRef: OAuthApp/acme}", "spec.auht", "the nearest known name is auth"),
    "another case": ("AUTH: {oauthAppRef: OAuthApp/acme}", "spec.AUTH", "the nearest known name is auth"),
    "a typo inside": ("auth: {oauthAppRef: OAuthApp/acme, scops: []}", "spec.auth.scops", "scopes"),
    "a list": ("auth: [OAuthApp/acme]", "spec.auth", "not a mapping"),
    "nothing": ("auth:", "spec.auth", "empty"),
    "an alias": ("auth: *shared", "spec.auth", "YAML aliases are not read"),
}


@pytest.mark.parametrize("kind", ["Extension", "Connection"])
@pytest.mark.parametrize("auth, path, what", WRONG_AUTHS.values(), ids=WRONG_AUTHS.keys())
def test_a_wrong_auth_of_an_extension_or_a_connection_is_refused(
    kind: str, auth: str, path: str, what: str, tmp_path: Path
):
    text = edited(EXTENSION, ("kind: Extension", f"kind: {kind}")) + f"  {auth}\n"
    [problem] = problems_in(write(tmp_path / "b", app=APP, part=text))
    assert path == problem.path
    assert what in f"{problem.what}, {problem.hint}"


IDLE = {
    "an agent's": (HEAD + "kind: Agent\nspec: {auth: {oauthAppRef: OAuthApp/acme}}\n", "spec.auth.oauthAppRef"),
    "one below another name": (EXTENSION + "  oauth: {oauthAppRef: OAuthApp/acme}\n", "spec.?.oauthAppRef"),
    "one of a list": (TOOL + "  uses: [{oauthAppRef: {kind: OAuthApp, name: acme}}]\n", "spec.?[0].oauthAppRef"),
}


@pytest.mark.parametrize("text, path", IDLE.values(), ids=IDLE.keys())
def test_a_reference_to_an_app_that_nothing_reads_is_never_passed_over_in_silence(text: str, path: str, tmp_path: Path):
    loaded = load(write(tmp_path / "b", app=APP, other=text))
    [doubt] = loaded.idle_refs
    assert ("an oauthAppRef that nothing reads", path) == (doubt.what, doubt.path)
    assert "spec.auth.oauthAppRef of a Tool, Extension, Connection or Connector" in doubt.hint


def test_a_schema_that_names_a_parameter_oauth_app_ref_is_no_reference(tmp_path: Path):
    schema = "  parameters: {properties: {oauthAppRef: {type: string}}}\n"
    assert () == load(write(tmp_path / "b", app=APP, tool=TOOL + schema)).idle_refs


@pytest.mark.parametrize(
    "word, known, slip",
    [
        ("auht", "auth", True), ("aut", "auth", True), ("outh", "auth", True), ("Auth", "auth", True),
        ("auth", "auth", False), ("path", "auth", False), ("OAuthAp", "OAuthApp", True),
        ("oauth_app", "OAuthApp", True), ("OAuthGrantRecord", "OAuthApp", False), ("Conector", "Connector", True),
        ("Toolset", "Tool", False), ("", "auth", False),
    ],
)  # fmt: skip
def test_a_slip_is_a_letter_or_a_case(word: str, known: str, slip: bool):
    assert slip == is_slip(word, known)


@pytest.mark.parametrize("word", ["author", "oauth", "authn", "auths"])
def test_a_field_that_holds_the_known_word_is_no_slip_of_it(word: str):
    assert not is_slip_of_field(word, "auth")
