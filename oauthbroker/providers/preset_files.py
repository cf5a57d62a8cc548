"""The presets of one form, in the files of a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING, TypeVar

from oauthbroker.core.shipped_yaml import shipped_yaml

if TYPE_CHECKING:
    from oauthbroker.providers.quirks import Data

P = TypeVar("P", bound="Data")


class Presets(Mapping[str, P]):
    """Every preset of one form by name, from the files of a package. A file is read when its preset is asked for: most
    processes need one or two of them. `form` imports the form for the first: a bundle of own providers needs none.

    Raises ValueError if a shipped file is wrong, which a test rules out.
    """

    def __init__(self, package: str, form: Callable[[], type[P]]) -> None:
        shipped = [file for file in resources.files(package).iterdir() if file.name.endswith(".yaml")]
        self._files = dict(sorted((file.name.removesuffix(".yaml"), file) for file in shipped))
        self._package = package
        self._form, self._read = form, dict[str, P]()

    def __getitem__(self, name: str) -> P:
        if name not in self._read:
            data = shipped_yaml(self._files[name])
            try:
                self._read[name] = self._form().model_validate(data)
            except ValueError as refused:
                where = f"{self._package.replace('.', '/')}/{name}.yaml"
                raise ValueError(f"correct {where}: {refused}") from None
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
