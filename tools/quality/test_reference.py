"""The reference of the site has a section for everything that the product has: its tables are made, none is kept by hand."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, get_args

import pytest

from oauthbroker import cli
from oauthbroker.cli.plugin_commands import plugin_commands
from oauthbroker.config.bundle.schema import bundle_schema
from oauthbroker.observability.metrics import Gauge, Metric, Timing
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.words import facts
from oauthbroker.records.event import EventType
from oauthbroker.web.api.openapi import document
from tools.quality.prose import long_cells
from tools.quality.words import MOST_OF_PAGE, count
from tools.site.reference import configuration
from tools.site.reference.__main__ import files, pages
from tools.site.reference.markdown import prose, table
from tools.site.reference.python_api import FACES, is_generated, members, names
from tools.site.reference.short_pages import short_pages
from tools.site.reference.signals import audit_entries
from tools.site.stage import ROOT

PAGES = pages()
SHORT = short_pages(PAGES)  # as the site has them
UNVERIFIED = re.compile(r"(?:^|; |: )unverified \(")


def headings(page: str) -> set[str]:
    return set(re.findall(r"(?m)^#+ `([^`]+)`", PAGES[page]))


@pytest.mark.parametrize("name", [*cli.COMMANDS, *plugin_commands(cli.COMMANDS).plugins])
def test_every_command_has_its_section_with_each_option(name: str) -> None:
    sections = {each.partition("`")[0]: each for each in re.split(r"(?m)^## `", PAGES[f"commands/{name}.md"])[1:]}
    command = cli.command_of(name) if name in cli.COMMANDS else plugin_commands(cli.COMMANDS).command(name)
    todo = [(name, command)]
    while todo:
        at, each = todo.pop()
        todo += [(f"{at} {part}", inner) for part, inner in getattr(each, "commands", {}).items()]
        if hasattr(each, "commands") or each.hidden:
            continue
        options = {it for shown in each.params if not getattr(shown, "hidden", False) for it in shown.opts}
        assert [] == [it for it in options if it.startswith("-") and it not in sections[at]], at


@pytest.mark.parametrize("kind", configuration.kinds(bundle_schema()))
def test_every_field_of_a_kind_has_its_row(kind: str) -> None:
    own, schema = PAGES[f"configuration/{kind}.md"], bundle_schema()
    steps = {step for path in re.findall(r"(?m)^\| `([^`]+)` \|", own) for step in re.split(r"[.\[\]]+", path)}
    known = configuration.fields(configuration.kinds(schema)[kind], schema["$defs"])
    assert [] == [path for path in known if path.rpartition(".")[2] not in steps]
    assert ("```yaml" in own) == (kind != "Connection"), "an example, where a page or an example of the tree has one"


def test_a_field_has_the_words_of_the_page_on_configuration() -> None:
    page = PAGES["configuration/OAuthApp.md"]
    assert "| `subjectMode` | `global`, `user` | required | `global`: one grant for a team." in page
    assert "| a space | the separator of scopes in a request" in page
    assert "| `login.prompt` | `login`, `select_account` |" in PAGES["configuration/Broker.md"]
    assert "| `connectParams.NAME.title` | text | the preset's, else empty | the label of its field" in page
    assert "| `endpoints.tokenUrl` | text | the preset's | see `endpoints` |" in page, "where its words are"
    assert (
        "| `auth.delivery` | `injected` | the tool may get it | `injected`: only [requests]"
        in PAGES["configuration/Tool.md"]
    )
    assert "| `issuers[].types` |" in PAGES["configuration/FlowService.md"]
    assert "| the header `typ` of its access tokens" in PAGES["configuration/FlowService.md"]
    assert "([how](../../docs/quirks.md#a-provider-that-refuses-pkce))" in page


def test_fields_of_two_types_do_not_share_their_words() -> None:
    for path in (each for each in PAGES if each.startswith("configuration/")):
        rows = re.findall(r"(?m)^\| `[^`]+` \| ([^|]+) \| ([^|]*) \| ([^|]{20,}) \|$", PAGES[path])
        types: dict[str, set[str]] = {}
        for kind, default, words in rows:
            types.setdefault(f"{default} {words}", set()).add(kind)
        assert {} == {words: kinds for words, kinds in types.items() if len(kinds) > 1 and "see `" not in words}, path


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_has_its_section(face: str) -> None:
    module: Any = import_module(face)
    assert {*names(module)} <= headings(f"python/{face}.md")
    assert f"]({face}.md) | " in PAGES["python/README.md"]


def without_words(module: Any) -> list[str]:
    """Return the public classes, functions and members of a module that no docstring explains. A contract's test has
    its claim as its name."""
    found = []
    for name in names(module):
        named = getattr(module, name)
        parts = {name: named, **{f"{name}.{each}": it for each, it in members(named)}} if inspect.isclass(named) else {}
        parts = {name: named} if inspect.isroutine(named) else parts
        found += [
            each
            for each, it in parts.items()
            if ".test_" not in each and (not it.__doc__ or (inspect.isclass(it) and is_generated(it)))
        ]
    return found


@pytest.mark.parametrize("face", FACES)
def test_every_public_member_has_a_docstring(face: str) -> None:
    assert [] == without_words(import_module(face))


def test_a_public_member_without_a_docstring_is_named() -> None:
    class Tap:
        """Opens."""

        def open(self) -> None: ...

        def close(self) -> None:
            """Close the tap."""

        def test_it_closes(self) -> None: ...

    @dataclass
    class Water:
        litres: int

    Tap.__module__ = Water.__module__ = "oauthbroker.tap"
    face: Any = ModuleType("face")
    face.__all__, face.Tap, face.Water, face.turn = ["Tap", "Water", "turn"], Tap, Water, lambda: None
    assert ["Tap.open", "Water", "turn"] == without_words(face)


def test_a_page_that_a_docstring_names_is_a_link() -> None:
    loose = r"(?<![\w/\[(])(?:docs/[\w/-]+|README)\.md"
    assert {} == {
        path: found for path, text in PAGES.items() if path.startswith("python/") and (found := re.findall(loose, text))
    }
    assert "[README.md](../../oauthbroker/mcp/README.md)" in PAGES["python/oauthbroker.mcp.md"]


def test_a_class_shows_how_it_is_made_and_which_attributes_it_has() -> None:
    page = PAGES["python/oauthbroker.testing.md"]
    assert "\nWebhookReceiver(*secrets: Secret, port: int = 0" in page
    assert "| `received` | `list[ReceivedWebhook]` |" in page
    assert "| `par` | `Par` | Whether authorization requests can be pushed: `off`, `offered`, or `required`" in page
    assert "class PluginRoute\n```" in PAGES["python/oauthbroker.plugins.md"], "its fields are a table"


def test_an_example_in_a_docstring_is_a_block_of_code() -> None:
    face = "oauthbroker.testing.key_provider_contract"
    (example,) = re.findall(r"(?s)```python\n(class Test.*?)```", PAGES[f"python/{face}.md"])
    space: dict[str, Any] = {"pytest": pytest, **vars(import_module(face))}
    exec(example, space)  # noqa: S102 - the example is under test
    assert {"provider", "stranger"} <= vars(space["TestAcmeHsm"]).keys()


def test_no_page_shows_the_text_of_python_or_a_list_of_internal_names() -> None:
    found = [path for path, text in PAGES.items() if path.startswith("python/") and "new function with partial" in text]
    assert [] == found
    assert "kinds: Sequence[str] = ..." in PAGES["python/oauthbroker.testing.md"]


def test_every_route_has_its_section_with_each_status_and_code() -> None:
    for path, methods in document()["paths"].items():
        for method, call in methods.items():
            _, found, rest = PAGES["routes.md"].partition(
                f"## `{method.upper()} {path}` {{ #{call['operationId']} }}\n"
            )
            assert found, path
            section = rest.partition("\n## ")[0]
            assert {*call["responses"]} == set(re.findall(r"(?m)^\| (\d+) \|", section)), path
            assert {each["name"] for each in call.get("parameters", ())} <= set(re.findall(r"`([^`]+)`", section))
    assert {*document()["components"]["schemas"]} == headings("schemas.md")


@pytest.mark.parametrize("name", presets())
def test_every_provider_has_its_page_with_each_fact_and_its_source(name: str) -> None:
    page, preset = PAGES[f"providers/{name}.md"], presets()[name]
    assert all(f"| {fact.label} |" in page for fact in facts(preset))
    assert "1. Register an application" in page
    assert "kind: OAuthApp" in page


@pytest.mark.parametrize("name", presets())
def test_a_row_looks_verified_exactly_if_no_source_of_it_is_unverified(name: str) -> None:
    for fact in facts(presets()[name]):
        assert fact.is_sure == (UNVERIFIED.search(fact.source) is None), fact.path
        assert f"| {fact.label} |" in PAGES[f"providers/{name}.md"]


@pytest.mark.parametrize("name", credential_presets())
def test_every_preset_of_keys_has_its_page_with_each_fact(name: str) -> None:
    page, preset = PAGES[f"providers/credentials/{name}.md"], credential_presets()[name]
    rows = dict(re.findall(r"(?m)^\| `([\w.]+)` \| .* \| (yes|no) \| .* \|$", page))
    assert {path: "no" if path in preset.unverified() else "yes" for path in preset.fact_paths()} == rows


TS_SOURCES = ROOT / "clients" / "typescript" / "src"


def test_every_exported_name_of_the_typescript_client_has_its_section() -> None:
    index = (TS_SOURCES / "index.ts").read_text("utf-8") + (TS_SOURCES / "node.ts").read_text("utf-8")
    listed = {word for names in re.findall(r"export \{([^}]+)\}", index) for word in re.findall(r"\w+", names)} - {
        "type"
    }
    listed |= {word for names in re.findall(r"export type \{([^}]+)\}", index) for word in re.findall(r"\w+", names)}
    types = (TS_SOURCES / "types.ts").read_text("utf-8")
    listed |= {*re.findall(r"(?m)^export \w+ (\w+)", types), "unixSocketFetch"}
    assert listed == {each for each in headings("typescript.md") if "/" not in each}


def test_a_class_of_the_typescript_client_shows_its_public_members_without_their_code() -> None:
    page = PAGES["typescript.md"]
    assert (
        "  lease(agent: string, options?: CallOptions & { waitSeconds?: number }): Promise<Delivery | null>;\n" in page
    )
    assert "function createOAuthFromEnv(env?: Record<string, string | undefined>): OAuth;\n" in page
    assert "  readonly event: AgentEvent;\n" in page
    assert "Seconds that the token must still be valid. */\n  minTtlSeconds?: number;" in page
    assert [] == re.findall(r"(?m)^ +return .*|await |#\w+:|private ", page)
    assert "`authorizationRequired` in a turn, `programNotFound` where oauthbroker is not installed." in page


def test_every_metric_and_type_of_entry_is_there() -> None:
    named = set(re.findall(r"`(\w+)`", PAGES["metrics.md"]))
    assert {each.value for kind in (Metric, Timing, Gauge) for each in kind} <= named
    assert {*audit_entries()} == headings("audit-entries.md")
    assert {"tools.ToolCalled", "mcp.ServerCalled", "flowtools.FlowCalled", "LogBegan"} <= {*audit_entries()}


def test_every_event_has_its_meaning_and_an_example_with_the_members_that_it_names() -> None:
    sections = dict(re.findall(r"(?ms)^## `([\w.]+)` [^\n]+\n(.*?)(?=^## |\Z)", PAGES["events.md"]))
    assert [*get_args(EventType)] == [*sections]
    for kind, section in sections.items():
        event = json.loads(section.partition("```json\n")[2].partition("```")[0])
        assert (kind, True) == (event["type"], event["eventId"].endswith(kind))
        named = re.findall(r"`(code|grantId|scopesGranted|endsAt|connectUrl)`", section)
        assert {*named} == event["payload"].keys() - {"oauthAppRef", "provider", "subject", "authSessionId"}


def test_values_and_meanings_read_as_they_are_written() -> None:
    app, index = PAGES["configuration/OAuthApp.md"], PAGES["configuration/README.md"]
    assert "| `quirks.scopeSeparator` | space, `,`, `,` and a space, `;`, a bar | a space |" in app
    assert "| `quirks.revoke.method` | `POST`, `DELETE`, `GET` | `POST` |" in app
    assert "| `quirks.revoke.okField` | text or empty |" in app
    assert [] == re.findall(r"(?m)^\| \[`\w+`\]\(\w+\.md\) \|  \|$", index), "a kind without a meaning"
    assert [] == [path for path, text in PAGES.items() if "(below)" in text and path.startswith("configuration/")]
    assert [] == re.findall(r"`[a-z]+_[a-z]+`|(?m:^\|  \|.*)", index)


def test_the_documents_for_programs_lie_beside_the_pages() -> None:
    assert {"configuration/oauthbroker.schema.json", "openapi.json"} == set(files())


@pytest.mark.parametrize("path", SHORT)
def test_a_made_page_is_short_enough_to_find_a_name_on(path: str) -> None:
    assert count(path, SHORT[path]).words <= MOST_OF_PAGE


def test_a_section_of_a_page_that_was_cut_is_found_by_its_links() -> None:
    assert "python/oauthbroker.plugins-2.md" in SHORT
    for path, text in SHORT.items():
        for to, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*\.md|)#([\w-]+)\)", text):
            home = posixpath.normpath(posixpath.join(posixpath.dirname(path), to)) if to else path
            assert home not in SHORT or f"{{ #{anchor} }}" in SHORT[home], f"{path}: {to}#{anchor}"
    sections = {path: re.findall(r"(?m)^#.*\{ #.*$", text) for path, text in PAGES.items()}
    kept = [each for text in SHORT.values() for each in re.findall(r"(?m)^#.*\{ #.*$", text)]
    assert sorted(kept) == sorted(each for found in sections.values() for each in found)


@pytest.mark.parametrize("path", PAGES)
def test_no_cell_of_a_made_table_is_too_long_to_read(path: str) -> None:
    assert [] == [*long_cells(PAGES[path])]


def test_text_of_the_product_cannot_become_markup() -> None:
    assert r"a &lt;b> \*c\* `<d>` <https://e.example/f> `https://{g}/h`." == prose(
        "a <b> *c* `<d>` https://e.example/f https://{g}/h."
    )
    assert "| a |\n|---|\n| 1 \\| 2 |\n" == table(("a", "empty"), [("1 | 2", "")])
    assert [] == [path for path, text in PAGES.items() if re.search(r" at 0x[0-9a-f]+", text)]
