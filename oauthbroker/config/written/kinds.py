"""The kinds of resources that one load reads: the broker's own, and those of the plug-ins that the bundle names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.fields import Strict
from oauthbroker.config.written.forwarder_spec import ForwarderSpec
from oauthbroker.config.written.resource_specs import (
    PARTS,
    ConnectorSpec,
    Header,
    OAuthAppSpec,
    PartSpec,
    ToolSpec,
    models_in,
)
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.plugins.declaration import ChecksKind

_OPTION_GROUPS: Final = frozenset({"authorize", "token", "refresh"})
_OF_SCHEMAS: Final = frozenset({"properties", "items", "type", "required", "enum", "pattern"})


@dataclass(frozen=True, slots=True)
class Reader:
    """One reading of a kind: the broker's, where `plugin` is empty, or a plug-in's. `form` is its model, or what
    imports it when a file has the kind."""

    form: type[Strict] | Callable[[], type[Strict]]
    plugin: str = ""
    check: ChecksKind | None = None

    @property
    def model(self) -> type[Strict]:
        return self.form if isinstance(self.form, type) else self.form()


@dataclass(frozen=True)
class Kinds:
    """The readers of each kind, the broker's first. A plug-in's own format has no readers, and the words it names."""

    readers: Mapping[str, tuple[Reader, ...]]
    own_words: frozenset[str] | None = None

    @cached_property
    def words(self) -> frozenset[str]:
        """The names of all fields. A configuration without a problem asks for none."""
        if self.own_words is not None:
            return self.own_words
        models: list[type[BaseModel]] = [Header, *(each.model for several in self.readers.values() for each in several)]
        return _OPTION_GROUPS.union(_OF_SCHEMAS, *map(_words, models))

    def masked(self, keys: Keys) -> Keys:
        """Replace each key that is no word of ours: `{s3cret}` in YAML is a key, and may be a mistake."""
        return tuple(key if isinstance(key, int) or key in self.words else "?" for key in keys)

    def of(self, kind: Any) -> tuple[Reader, ...]:
        return self.readers.get(kind, ()) if isinstance(kind, str) else ()

    def plugin_reads(self, kind: Any, path: Keys = ("spec",)) -> bool:
        """Tell whether a plug-in reads this kind, and the field of its `spec` that the path leads through."""
        below = path[1:2]
        return any(
            each.plugin and path[0] == "spec" and (not below or below[0] in known_names(each.model, below))
            for each in self.of(kind)
        )


def _words(model: type[BaseModel], above: tuple[type[BaseModel], ...] = ()) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield info.alias or name
        for inner in models_in(info.annotation):
            if inner not in above:  # a plug-in's model may contain itself
                yield from _words(inner, (*above, inner))


def known_names(model: type[BaseModel], path: Keys) -> list[str]:
    """Return the names that a mapping may have at the place of `path`'s last step."""
    current: Any = model
    for step in path[:-1]:
        if isinstance(step, str):
            fields = {info.alias or name: info for it in models_in(current) for name, info in it.model_fields.items()}
            current = fields[step].annotation if step in fields else current  # else a key of a mapping of models
    return [info.alias or name for it in list(models_in(current))[:1] for name, info in it.model_fields.items()]


def _credential_app() -> type[Strict]:
    from oauthbroker.config.written.credential_app_spec import CredentialAppSpec

    return CredentialAppSpec


_FORMS: Final[dict[str, type[Strict] | Callable[[], type[Strict]]]] = {
    "OAuthApp": OAuthAppSpec,
    "CredentialApp": _credential_app,
    "Broker": BrokerSpec,
    "Forwarder": ForwarderSpec,
    "Tool": ToolSpec,
    "Connector": ConnectorSpec,
    **dict.fromkeys(PARTS, PartSpec),
}
OURS: Final = Kinds({kind: (Reader(form),) for kind, form in _FORMS.items()})
