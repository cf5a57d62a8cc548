"""What a plug-in declares (docs/plugins.md). These names are public on `oauthbroker.plugins`.

Values of the form `module:object` name what the broker imports when it first needs it. So listing the installed
plug-ins imports one small module of each.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oauthbroker.core.dataclasses import dataclass, field

if TYPE_CHECKING:
    from pydantic import BaseModel

    from oauthbroker.audit.plugin_entry import PluginAudit

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCommand:
    """A command beside those of `oauthbroker`. `help` is its line in `--help`; `app` names a `typer.Typer`."""

    help: str
    app: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRecords:
    """What a plug-in keeps about a subject outside of the broker's store: so many records. `ending` of them are work
    under way that has to end first, such as runs."""

    records: int = 0
    ending: int = 0


class ErasesSubject(Protocol):
    """End and remove what a plug-in keeps about a subject outside of the broker's store, and return what there was.
    With `dry_run`, change nothing. Idempotent: what one call leaves, the next one removes. `bundle` is that of
    `Broker`, and `audit` its method. Raises `BrokerError`."""

    def __call__(
        self, bundle: Any, subject: str, /, *, dry_run: bool, audit: PluginAudit
    ) -> Awaitable[SubjectRecords]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A plug-in. Its entry point in the group `oauthbroker.plugins` has the same name.

    `kinds` names a tuple of `ResourceKind`, `audit_types` a tuple of `PluginAuditEntry` classes, `open` an
    `OpensPlugin`, `secret_places` a function of the store's path and the plug-in's `PluginResources` that returns the
    files and folders that no tool is to read. A plug-in that keeps data outside of the broker's store names an
    `ErasesSubject` in `erase`, and its `backup` is a sentence that says how to back that data up. An empty text means
    none. They count only where `Broker.spec.plugins` names the plug-in; its commands always do.
    """

    name: str
    commands: Mapping[str, PluginCommand] = field(default_factory=dict)
    kinds: str = ""
    audit_types: str = ""
    open: str = ""
    erase: str = ""
    backup: str = ""
    secret_places: str = ""

    def __post_init__(self) -> None:
        for name in (self.name, *self.commands):
            if not _NAME.fullmatch(name):
                raise ValueError("a plug-in or its command is named with small letters, digits and -, at most 32")
        if not all(isinstance(each, PluginCommand) for each in self.commands.values()):
            raise TypeError("`commands` has a PluginCommand for each name")


class WrittenResource(Protocol):
    """A resource as written, for a check. Paths are those of its `spec`, in the spelling of the YAML."""

    @property
    def kind(self) -> str:
        """Return the kind, such as `Tool`."""
        ...

    @property
    def name(self) -> str:
        """Return `metadata.name`."""
        ...

    @property
    def spec(self) -> Any:
        """Return the `spec`, parsed by the kind's model."""
        ...

    def refuse(self, path: Sequence[str | int], what: str, hint: str) -> None:
        """Report a problem at a path. Quote nothing of the value, because it may be a secret."""

    def refuse_name(self, what: str, hint: str) -> None:
        """Report a problem of the resource's own name."""

    def missing(self, path: Sequence[str | int], hint: str) -> None:
        """Report an absent field, unless its shape was refused already."""

    def whole(self, *path: str | int) -> bool:
        """Tell whether nothing at, above or below the path was refused for its shape, nor the field as misspelt."""


class WrittenResources(Protocol):
    """All resources of the bundle that the broker or a plug-in reads. `folder` is the folder of the bundle."""

    @property
    def folder(self) -> Path:
        """Return the folder of the bundle."""
        ...

    def of(self, kind: str) -> Mapping[str, WrittenResource]:
        """Return the resources of a kind by name."""

    def refer(self, resource: WrittenResource, path: Sequence[str | int], kind: str) -> WrittenResource | None:
        """Return the resource that the reference at `path` names. None after reporting that it is missing, of another
        kind, or not in the bundle."""


class ChecksKind(Protocol):
    """Report the problems of one resource beyond its shape, those of its references included."""

    def __call__(self, resource: WrittenResource, resources: WrittenResources, /) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of resource. `model` is a subclass of `Strict`, or of `Tolerant` for a kind that other programs read too.

    For `Tool`, `Extension`, `Connection` or `Connector`, the model is `Tolerant` and reads fields beside the broker's.
    """

    kind: str
    model: type[BaseModel]
    check: ChecksKind | None = None

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ValueError("a kind is named with letters and digits, a capital letter first, at most 64")
        if not isinstance(self.model, type):
            raise TypeError("`model` is a class")
