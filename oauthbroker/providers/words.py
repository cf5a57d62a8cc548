"""A preset in words: its facts, each with its source. Unverified facts are marked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.providers.preset import Preset

# By a fact's path or field, in the order in which facts are printed: a label, a text with {} for the value, and words
# for some values.
_WORDS: dict[str, tuple[str, str, dict[str, str]]] = {
    path: (*row, *("{}", {})[len(row) - 1 :])
    for path, row in json.loads(resources.files(__package__).joinpath("words.json").read_text("utf-8")).items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a preset says. `path` is its place in the file; `unverified` are the parts without a source."""

    path: str
    label: str
    text: str
    source: str
    unverified: tuple[str, ...]

    @property
    def is_sure(self) -> bool:
        return not self.unverified

    @property
    def mark(self) -> str:
        """What to say beside the text: nothing, `unverified`, or which parts are."""
        if self.is_sure or self.source.startswith("unverified"):
            return "" if self.is_sure else "unverified"
        return f"unverified: {', '.join(self.unverified)}"


def facts(preset: Preset) -> list[Fact]:
    """Return all facts that are set, grouped for reading: an endpoint, an identity, a note, or a field each."""
    units: dict[str, list[str]] = {}
    for path in preset.fact_paths():
        if not path.startswith("modes."):
            units.setdefault(_unit(path), []).append(path)
    return [_fact(preset, unit, paths) for unit, paths in sorted(units.items(), key=lambda it: _place(it[0]))]


def own_facts(preset: Preset, mode: str) -> list[Fact]:
    """Return the facts of a mode that differ from its preset's."""
    usual = {fact.path: fact.text for fact in facts(preset)}
    return [fact for fact in facts(preset.in_mode(mode)) if usual.get(fact.path) != fact.text]


def account(preset: Preset, mode: Literal["user", "global"]) -> tuple[str, bool]:
    """Return how an account is spelt, in one word for tables, and whether that is sure."""
    identity = preset.identity.user if mode == "user" else preset.identity.global_
    sure = not any(path.startswith(f"identity.{mode}.") for path in preset.unverified())
    if identity is None:
        return "write one", True
    return identity.template or f"{identity.source}, write a template", sure


def flows(preset: Preset) -> tuple[str, bool]:
    """Return the flows known to work there, and whether that is sure."""
    return " ".join(preset.flows), "flows" not in preset.unverified()


def _unit(path: str) -> str:
    steps = path.split(".")
    return ".".join(steps[: 2 if steps[0] in {"derived", "endpoints", "identity", "notes", "params"} else 1])


def _fact(preset: Preset, unit: str, paths: list[str]) -> Fact:
    name, _, inner = unit.partition(".")
    found = preset.model_dump(by_alias=True, exclude_unset=True)[name]
    value = found[int(inner)] if isinstance(found, list) and inner else found[inner] if inner else found
    label, text = _rendered(unit, value)
    sources: dict[str, list[str]] = {}
    for path in paths:
        sources.setdefault(preset.source(path), []).append(path.removeprefix(f"{unit}."))
    if len(sources) == 1:
        source = next(iter(sources))
    else:
        source = "; ".join(f"{', '.join(parts)}: {said}" for said, parts in sources.items())
    unsure = [part for said, parts in sources.items() if said.startswith("unverified") for part in parts]
    return Fact(path=unit, label=label, text=text, source=source, unverified=tuple(unsure))


def _place(unit: str) -> tuple[int, int]:
    name, _, inner = unit.partition(".")
    return list(_WORDS).index(unit if unit in _WORDS else name), int(inner) if inner.isdigit() else 0


def _rendered(unit: str, value: Any) -> tuple[str, str]:
    """Return the label and the text of a fact."""
    name, _, inner = unit.partition(".")
    label, text, values = _WORDS.get(unit) or _WORDS[name]
    match name:
        case "params":
            usual = f"; {value['default']} if left out" if value.get("default") else ""
            return f"{label} {inner}", value["description"] + usual
        case "derived":
            where = {pattern: f"where {value['of']} is {pattern}" for pattern in value["values"]} | {".+": "otherwise"}
            cases = [f"{said or 'nothing'} {where[pattern]}" for pattern, said in value["values"].items()]
            return f"{label} {inner}", "; ".join(cases)
        case "identity":
            return "a person is" if inner == "user" else "a team is", _identity(text, values, value)
        case "apiHosts":
            return label, _shown([host if isinstance(host, str) else account_host(host) for host in value])
        case "tokenLimit":
            scopes = " and set of scopes" if value.get("per") == "clientAndScopes" else ""
            return label, text.format(value["count"], scopes)
        case "facts":
            return label, _facts(value)
        case "revoke":
            return label, _revoke(text, values, value)
    shown = _shown(value)
    return label, text.format(values.get(shown, shown or "nothing"))


def account_host(host: Mapping[str, str]) -> str:
    """Return a host that differs by account, in words."""
    return f"*{host['within']} as told in {host['providerData']}"


def _facts(value: Mapping[str, Any]) -> str:
    hmac = ["the callback's query is signed (hmac)"] if value.get("hmac") else []
    callback = [f"{name} of the callback" for name in value.get("callback") or ()]
    user_info = [f"{name} of the who-am-I answer" for name in value.get("userInfo") or ()]
    asked = [f"{', '.join(each['each'])} of {each['url']}" for each in value.get("requests") or ()]
    chosen = ["several are a choice of the user"] if any(it.get("choose") for it in value.get("requests") or ()) else []
    return "; ".join([*callback, *user_info, *asked, *chosen, *hmac])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return " ".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def _identity(text: str, sources: Mapping[str, str], value: Mapping[str, Any]) -> str:
    facts: Mapping[str, bool | str] = value.get("requires") or {}
    where = " and ".join(f"{name} is {str(said).lower()}" for name, said in facts.items())
    rendered = text.format(value.get("template") or "a template that you write", sources[value["from"]])
    name = value.get("name")
    return f"{rendered}{where and f' where {where}'}{(name and f', shown as its {name}') or ''}"


def _revoke(text: str, reach: Mapping[str, str], value: Mapping[str, Any]) -> str:
    kind = value.get("kind", "rfc7009")
    if kind == "none":
        return "no way is known"
    how = "RFC 7009" if kind == "rfc7009" else f"its own way ({value.get('method', 'POST')})"
    which = {"access": ", takes access tokens", "refresh": ", takes refresh tokens"}.get(value.get("tokens", ""), "")
    return text.format(how + which, reach[value.get("reach", "grant")])
