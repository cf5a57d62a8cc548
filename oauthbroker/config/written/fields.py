"""The parts of every written form: strict models, short texts, references."""

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function, no_info_plain_validator_function

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


class _OnItsOwn:
    """Lets a form be validated by its own validator, which pydantic builds at its first use."""

    def __get_pydantic_core_schema__(self, form: type[BaseModel], _: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_plain_validator_function(form.model_validate, metadata={"form": form})

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        form: type[BaseModel] = schema["metadata"]["form"]
        form.model_rebuild()
        named: Any = {**form.__pydantic_core_schema__, "ref": f"{form.__module__}.{form.__name__}:{id(form)}"}
        return handler(no_info_before_validator_function(form.model_validate, named))


Form = TypeVar("Form", bound=BaseModel)
Rare = Annotated[Form, _OnItsOwn()]
"""A part that few files write. The form around it is built without it, in less time."""
Text = Annotated[str, Field(max_length=2048)]
Texts = Annotated[list[Text], Field(max_length=200)]


class ObjectRef(Strict):
    """`"Kind/name"` or `{kind, name, apiVersion?}`."""

    api_version: Literal["agents.example.io/v1alpha1", "goondan.ai/v1"] | None = None
    kind: Text | None = None
    name: Text | None = None


Ref = Annotated[ObjectRef, BeforeValidator(_ref, json_schema_input_type=Text | ObjectRef)]
