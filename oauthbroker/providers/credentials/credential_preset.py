"""The form of a preset of a static credential."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from oauthbroker.providers.credential_form import Fields, InjectForm, LifeForm, VerifyForm, placeholders
from oauthbroker.providers.preset import Documented, Param, Preset

_NO_FACTS = {"name", "title", "documentation", "evidence"}


class CredentialPreset(Documented):
    """Everything known of one provider's static credential. `verify` and `api_base_path` go to the first of
    `api_hosts`."""

    name: str
    title: str
    documentation: Annotated[str, Field(pattern=r"^[a-z0-9.-]+(/\S*)?$")] = ""
    params: dict[str, Param] = Field(default_factory=dict)
    fields: Fields
    inject: InjectForm
    api_hosts: Annotated[list[str], Field(min_length=1, max_length=30)]
    api_base_path: str = ""
    verify: VerifyForm | None = None
    life: LifeForm | None = None
    notes: list[Annotated[str, Field(min_length=10, max_length=400)]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        """Raises ValueError for a placeholder without a field or parameter, and for a fact without evidence."""
        known = {*self.fields, *self.params}
        for name in placeholders(self.inject.placement()):
            if name not in known:
                raise ValueError(f"{self.name}: inject names {name}, which is no field")
        for fact in self.fact_paths():
            if not self.source(fact):
                raise ValueError(f"{self.name}: no evidence for {fact}")
        return self

    def fact_paths(self) -> list[str]:
        """Return the path of every fact: `fields.apiKey`, `inject`, `notes.0`."""
        found = list[str]()
        for name, value in self.model_dump(by_alias=True, exclude_unset=True, exclude=_NO_FACTS).items():
            if name in {"params", "fields"}:
                found += [f"{name}.{each}" for each in value]
            elif name == "notes":
                found += [f"notes.{index}" for index in range(len(value))]
            else:
                found.append(name)
        return found

    def provider(self) -> Preset:
        """Return what an app with hosts, parameters and a title takes of any preset."""
        known = {
            "name": self.name,
            "title": self.title,
            "params": self.params,
            "apiHosts": self.api_hosts,
            "apiBasePath": self.api_base_path,
            "evidence": {},
        }
        return Preset.model_validate(known)
