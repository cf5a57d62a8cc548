"""Find the plug-ins that a bundle names in `Broker.spec.plugins`, and the kinds that they add."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oauthbroker.config.problems.problems import Keys, Problems
from oauthbroker.config.reading.files import documents_of, read_files
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.reading.variables import with_variables
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.written.app_resources import AppResource
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.fields import Strict, Tolerant
from oauthbroker.config.written.kinds import OURS, Kinds, Reader
from oauthbroker.config.written.resource_specs import PARTS
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError
from oauthbroker.plugins.declaration import ResourceKind
from oauthbroker.plugins.discovery import check_audit_types, declared, installed, kinds_of

EXTENDABLE: Final = frozenset({"Tool", "Connector", *PARTS})
_REMEDY: Final = "update the package of the plug-in, or remove the name"


@dataclass(slots=True)
class NamedPlugins:
    """The kinds of a bundle with those of its plug-ins. `problems` are (index in the list of names, problem,
    remedy)."""

    kinds: Kinds = OURS
    problems: list[tuple[int, str, str]] = field(default_factory=list)

    def report(self, broker: Written[BrokerSpec]) -> None:
        """Report the problems at the names."""
        for index, what, hint in self.problems:
            broker.refuse(("plugins", index), what, hint)


def read_bundle(
    bundle: Path, problems: Problems, env: Mapping[str, str], apps: Sequence[AppResource] | None = None
) -> tuple[list[YamlDocument], NamedPlugins]:
    """Read the documents of a bundle, with the environment's fields of the Broker resource and the `apps` of a program;
    a bundle of such apps alone may lack its folder. With plug-ins they are read twice: the Broker resource names the
    plug-ins, and their kinds decide which documents are ours."""
    files, first = read_files(bundle, problems) if apps is None or bundle.exists() else [], Problems()
    ours = [_of_code(at, each, bundle) for at, each in enumerate(apps or ())]
    documents = with_variables([*documents_of(files, first), *ours], env, bundle, first)
    named = plugins_of(_names_in(documents))
    if named.kinds is not OURS:
        again = [*documents_of(files, problems, named.kinds), *ours]
        return with_variables(again, env, bundle, problems), named
    problems.unread = problems.unread or first.unread
    for each in first.found:
        problems.take(each)
    return documents, named


def _of_code(at: int, app: AppResource, bundle: Path) -> YamlDocument:
    """Return an app of a program as a document. Relative paths start where the bundle's folder does."""
    name = f"apps[{at}]"
    variables: dict[Keys, str] = {(): name}
    return YamlDocument(
        file=name, folder=bundle.absolute(), data=app.document(), values={}, keys={}, variables=variables
    )


def _names_in(documents: Iterable[YamlDocument]) -> list[str]:
    """Return the names in `Broker.spec.plugins`, before any shape is checked."""
    for each in documents:
        if each.kind == "Broker":
            spec: Any = each.data.get("spec")
            names = spec.get("plugins") if isinstance(spec, dict) else None
            return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
    return []


def plugins_of(names: Collection[str]) -> NamedPlugins:
    """Find the plug-ins of these names. A plug-in that cannot be used is a problem and adds nothing."""
    readers, problems, seen = dict(OURS.readers), list[tuple[int, str, str]](), set[str]()
    known = {each.name for each in installed()} if names else set[str]()
    for index, name in enumerate(names):
        if name in seen:
            problems.append((index, "the same plug-in twice", "remove one"))
        elif name not in known:
            hint = f"name an installed one ({', '.join(sorted(known))}), or install the package that has it"
            problems.append((index, "no plug-in of this name is installed", hint))
        elif problem := _add(name, readers):
            problems.append((index, problem, _REMEDY))
        seen.add(name)
    return NamedPlugins(OURS if readers == OURS.readers else Kinds(readers), problems)


def _add(name: str, readers: dict[str, tuple[Reader, ...]]) -> str:
    """Add the kinds of a plug-in. Return why it cannot be used, or an empty text."""
    try:
        plugin = declared(name)
        kinds = kinds_of(plugin)
        check_audit_types(plugin)
    except BrokerError as error:
        return error.note
    added: dict[str, Reader] = {}
    for each in kinds:
        why = "is declared twice" if each.kind in added else _problem(each, readers.get(each.kind, ()))
        if why or not issubclass(each.model, Strict):
            return (
                f"the kind {each.kind} of the plug-in {name} {why or 'has a model that is no Strict and no Tolerant'}"
            )
        added[each.kind] = Reader(each.model, name, each.check)
    readers |= {kind: (*readers.get(kind, ()), reader) for kind, reader in added.items()}
    return ""


def _problem(added: ResourceKind, readers: tuple[Reader, ...]) -> str:
    """Return why a plug-in cannot declare this kind beside its readers so far, or an empty text."""
    if added.kind in EXTENDABLE:
        return "" if issubclass(added.model, Tolerant) else "is read by the broker too, and its model is no Tolerant"
    if added.kind == "Secret" or any(not each.plugin for each in readers):
        return "is a kind of the broker"
    return f"is also a kind of the plug-in {readers[0].plugin}" if readers else ""
