"""The pages of the providers, a page for each preset: the steps of registering, every fact with its source, and an app to
start from, as `oauthbroker providers show` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oauthbroker.cli import credential_presets as keys
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.credentials.credential_preset import CredentialPreset
from oauthbroker.providers.preset import Preset
from oauthbroker.providers.registering import steps
from oauthbroker.providers.skeleton import app_name, app_yaml
from oauthbroker.providers.words import Fact, facts, own_facts
from tools.site.reference.markdown import block, code, prose, table

INDEX = """\
# {title}

Made from the files in `{folder}`, a page for each. [{about}]({page}) says what a preset is, and what *unverified* means.

"""
HEAD = ("fact", "value", "verified", "source")


def pages() -> dict[str, str]:
    made = {f"providers/{name}.md": "\n".join(_oauth(each)) for name, each in presets().items()}
    made |= {
        f"providers/credentials/{name}.md": "\n".join(_credential(each)) for name, each in credential_presets().items()
    }
    words = {"title": "Providers, one by one", "folder": "oauthbroker/providers/", "about": "Providers"}
    made["providers/README.md"] = INDEX.format(**words, page="../../docs/providers.md") + _list(presets().values())
    words = {"title": "Keys, one by one", "folder": "oauthbroker/providers/credentials/", "about": "Presets of keys"}
    made["providers/credentials/README.md"] = INDEX.format(**words, page="../../../docs/credential-presets.md") + _list(
        credential_presets().values()
    )
    return made


def _list(found: Iterable[Preset] | Iterable[CredentialPreset]) -> str:
    rows = ((f"[{code(it.name)}]({it.name}.md)", prose(it.title), str(len(it.unverified()) or "")) for it in found)
    return table(("preset", "provider", "unverified facts"), rows)


def _head(preset: Preset | CredentialPreset) -> str:
    where = f" It is described at <https://{preset.documentation}>." if preset.documentation else ""
    return f"# {preset.title}\n\n`provider: {preset.name}`.{where} [All presets](README.md).\n"


def _oauth(preset: Preset) -> Iterator[str]:
    modes = list(preset.modes.values) if preset.modes else []
    yield _head(preset)
    yield "## Register an app { #register }\n"
    yield "\n".join(prose(step) for step in steps(preset, app_name(preset, next(iter(modes), "")))) + "\n"
    yield "## An app to start from { #app }\n"
    yield block(SCHEMA_LINE + "---\n".join(app_yaml(preset, mode) for mode in modes or [""]), "yaml")
    yield "## Facts { #facts }\n"
    yield table(HEAD, map(_fact, facts(preset)))
    for mode in modes:
        option = preset.modes.option if preset.modes else ""
        yield f"With `options: {{{preset.name}: {{{option}: {mode}}}}}`:\n"
        yield table(HEAD, map(_fact, own_facts(preset, mode)))


def _fact(fact: Fact) -> tuple[str, ...]:
    value = code(fact.text) if fact.path.startswith("endpoints.") else prose(fact.text)
    return fact.label, value, "yes" if fact.is_sure else fact.mark.replace("unverified", "no"), prose(fact.source)


def _credential(preset: CredentialPreset) -> Iterator[str]:
    yield _head(preset)
    yield "## An app to start from { #app }\n"
    yield block(SCHEMA_LINE + keys.app_yaml(preset), "yaml")
    yield "## Facts { #facts }\n"
    rows = []
    for path, text in keys.facts_of(preset):
        source = preset.source(path)
        rows.append((code(path), prose(text), "no" if source.startswith("unverified") else "yes", prose(source)))
    yield table(HEAD, rows)
