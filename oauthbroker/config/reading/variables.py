"""Fields of the Broker resource from the environment: `spec.listen.port` is OAUTHBROKER_LISTEN_PORT.

The names come from the models. A variable takes precedence over the file and goes through the same checks.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from oauthbroker.config.problems.problems import ConfigProblem, Keys, Problems, SourcePlace, dotted
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.fields import API_VERSIONS
from oauthbroker.config.written.resource_specs import models_in
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.spelling import nearest

PREFIX: Final = "OAUTHBROKER_"
OTHERS: Final = frozenset(
    f"{PREFIX}{name}" for name in ("URL", "API_KEY", "TURN_TOKEN", "ACCESS_TOKEN", "KEY", "KEY_FILE", "STORE_KEY")
)
"""Variables that are no field of the Broker: of clients, of tools, and of the store's key."""

_OF_A_TURN: Final = {f"{PREFIX}LOCALE"}  # in a tool's process, which OAUTHBROKER_TURN_TOKEN marks, it is the turn's
_NOT_FIELDS: Final = re.compile(PREFIX + r"(FLOWS_.*|(.*_)?SERVICE_(HOST|PORT).*)")  # plug-in; links of Kubernetes
_SHOWN: Final = re.compile(r"[A-Z0-9_]{1,64}")
_FORMS: Final[Mapping[Any, str]] = {bool: "boolean", int: "number", float: "number"}
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")


@dataclass(frozen=True, slots=True)
class Variable:
    """One field of the Broker resource. `form`: how its text is read."""

    name: str
    path: Keys
    form: str

    def value(self, text: str) -> Any:
        """Return the value as YAML would have it. Text of another type is left for the model to refuse. Raises
        ValueError for text that should be JSON."""
        if self.form == "value":
            return {"valueFrom": {"env": self.name}}
        if self.form == "list":
            return [each.strip() for each in text.split(",") if each.strip()]
        if self.form in {"boolean", "number"}:
            plain = text in {"true", "false"} or _NUMBER.fullmatch(text)
            return json.loads(text) if plain else text
        return json.loads(text) if self.form == "JSON" else text


@cache
def variables() -> Mapping[str, Variable]:
    """Return all variables by their names."""
    return {each.name: each for each in _variables(BrokerSpec, (), PREFIX.rstrip("_"))}


def _variables(model: type[BaseModel], path: Keys, name: str) -> Iterator[Variable]:
    for field, info in model.model_fields.items():
        here, variable = (*path, info.alias or field), f"{name}_{field.rstrip('_').upper()}"
        inner = list(models_in(info.annotation))
        form = form_of(info.annotation)
        form = "value" if form == "group" and inner[0] is ValueSource else form
        if form == "group":
            yield from _variables(inner[0], here, variable)
        else:
            yield Variable(variable, ("spec", *here), form)


def form_of(annotation: Any) -> str:
    """Return how the text of a field is read, by its type. Its JSON Schema would cost a fifth of a process's start."""
    kind = _plain(annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "group"
    if get_origin(kind) is list:
        (item,) = map(_plain, get_args(kind))
        return "list" if item is str or get_origin(item) is Literal else "JSON"
    return "JSON" if get_origin(kind) is dict else _FORMS.get(kind, "text")


def _plain(annotation: Any) -> Any:
    """Return a type without its constraints, and without `None` beside it."""
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return annotation


def with_variables(
    documents: list[YamlDocument], env: Mapping[str, str], bundle: Path, problems: Problems
) -> list[YamlDocument]:
    """Return the documents with the environment's values in the first Broker resource. A bundle without one
    gets one."""
    known = variables()
    values: dict[Variable, Any] = {}
    not_ours = _OF_A_TURN if f"{PREFIX}TURN_TOKEN" in env else set()
    for name in sorted(known.keys() & env.keys() - not_ours):
        variable, place = known[name], SourcePlace(f"environment {name}")
        if variable.form not in {"list", "JSON"} and not env[name].isprintable():
            hint = "remove it; a file with Windows line ends leaves one"
            problems.add(place, dotted(variable.path), "a line break or control character", hint)
            continue
        try:
            if env[name]:
                values[variable] = variable.value(env[name])
        except ValueError:
            problems.add(place, dotted(variable.path), "not JSON", "write this field as JSON, quotes included")
    if not values:
        return documents
    at = next((at for at, it in enumerate(documents) if it.kind == "Broker"), None)
    if at is None:
        return [*documents, _filled(_empty(bundle), values)]
    return [*documents[:at], _filled(documents[at], values), *documents[at + 1 :]]


def _empty(bundle: Path) -> YamlDocument:
    """Return a Broker resource without a field. Relative paths start at the bundle's folder, as in a file there."""
    folder = bundle if bundle.is_dir() else bundle.parent
    data = {"apiVersion": API_VERSIONS[0], "kind": "Broker", "metadata": {"name": "broker"}, "spec": {}}
    return YamlDocument(file=str(bundle), folder=folder, data=data, values={}, keys={}, variables={(): str(bundle)})


def _filled(document: YamlDocument, values: Mapping[Variable, Any]) -> YamlDocument:
    data, places = copy.deepcopy(document.data), dict[Keys, str]()
    for variable, value in values.items():
        above: Any = data
        for step in variable.path[:-1]:
            above = above.setdefault(step, {}) if isinstance(above, dict) else None
        if isinstance(above, dict):  # else the file has a value of another shape there, which is refused
            above[variable.path[-1]] = value
            places[variable.path] = f"environment {variable.name}"
    return replace(document, data=data, variables=document.variables | places)


def unknown_variables(env: Mapping[str, str], used: Iterable[str]) -> tuple[ConfigProblem, ...]:
    """Return a warning for each variable with our prefix that nothing reads. `used` are those that the bundle names."""
    known = {*variables(), *OTHERS}
    found = Problems()
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in known or name in used or _NOT_FIELDS.fullmatch(name):
            continue
        shown = name if _SHOWN.fullmatch(name) else f"{PREFIX}?"
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else "`oauthbroker config show --env` lists the variables"
        found.add(SourcePlace(f"environment {shown}"), "", "no setting of the broker", hint)
    return tuple(found.found)
