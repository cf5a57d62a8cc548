"""The parts of every written form: strict models, short texts, references."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

API_VERSIONS: Final = ("agents.example.io/v1alpha1", "goondan.ai/v1")
_EMPTY: Final = object()


class Strict(BaseModel):
    """camelCase, no unknown fields, no coercion; a field that is written but empty is not an absent field. The files of
    forms leave annotations as they are: pydantic compiles each one that is text."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )

    @classmethod
    def empty(cls) -> Self:
        """Return the form in which nothing is written, without its validator, which takes milliseconds to build."""
        return cls.model_construct()

    @model_validator(mode="before")
    @classmethod
    def _empty_is_written(cls, data: Any) -> Any:
        return {k: _EMPTY if v is None else v for k, v in data.items()} if isinstance(data, dict) else data


class Tolerant(Strict):
    """A form whose other fields belong to another program."""

    model_config = ConfigDict(extra="ignore")


def _ref(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kind, slash, name = value.partition("/")
    if not (kind and slash and name) or "/" in name:
        raise PydanticCustomError("reference", "not a reference")
    return {"kind": kind, "name": name}


Text = Annotated[str, Field(max_length=2048)]
Texts = Annotated[list[Text], Field(max_length=200)]


class ObjectRef(Strict):
    """`"Kind/name"` or `{kind, name, apiVersion?}`."""

    api_version: Literal["agents.example.io/v1alpha1", "goondan.ai/v1"] | None = None
    kind: Text | None = None
    name: Text | None = None


Ref = Annotated[ObjectRef, BeforeValidator(_ref, json_schema_input_type=Text | ObjectRef)]
