"""The resource kind `ActionSchema`: the actions, fields, rules and warnings of one domain. The second form of an action
schema is JSON Schema 2020-12, with linear regexes and without remote references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import getitem
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, FiniteFloat

from oauthbroker.gateway.values import AMONG, NUMBERS, shown, size_of, type_of
from oauthbroker.plugins import ResourceKind, Strict, WrittenResource, WrittenResources, json_schema_validator

Name = Annotated[str, Field(min_length=1, max_length=128)]
Line = Annotated[str, Field(min_length=1, max_length=300)]
Number = int | FiniteFloat
Scalar = bool | Number | Annotated[str, Field(max_length=1024)]
Scalars = Annotated[list[Scalar], Field(min_length=1, max_length=1000)]
JsonType = Literal["string", "number", "integer", "boolean", "array", "object"]
Place = tuple[str | int, ...]
_MOST_WORK: Final = 10_000  # values of an action times those of its schema, up to which all errors are listed
_BOUNDS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("min", "max"), NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "format"), ("string",)),
}
STAGES: Final = ("MISSING_REQUIRED_FIELD", "TYPE_MISMATCH", "INVALID_FORMAT", "VALUE_OUT_OF_RANGE")
_STAGE_OF: Final = {"required": STAGES[0], "type": STAGES[1], "pattern": STAGES[2], "format": STAGES[2]}


class FieldSpec(Strict):
    """The form of a field. All that is written holds; bounds are for numbers, lengths for strings."""

    type: JsonType | None = None
    format: Literal["uuid", "email", "phone", "iso8601", "productId", "orderId", "couponCode"] | None = None
    min: Number | None = None
    max: Number | None = None
    min_length: int | None = None
    max_length: int | None = None
    enum: Scalars | None = None


class ConditionSpec(Strict):
    """A comparison of a field with one other side: a constant, a field, the user's context, a list of the call, or, in
    warnings, a multiple of the field's average."""

    field: Name
    op: Literal["equals", "notEquals", "below", "atMost", "above", "atLeast", "in", "notIn"]
    value: Scalar | Scalars | None = None
    other_field: Name | None = None
    context: Name | None = None
    list: Literal["available_products", "available_coupons"] | None = None
    times_average: Number | None = None
    text: Line


class SameActionsSpec(Strict):
    count: Annotated[int, Field(ge=2)]
    text: Line


class ActionSpec(Strict):
    """One action: its schema in one of two forms, and its rules. `items` are arrays of objects with these required
    fields, for which the fields, rules and warnings of the domain hold, too."""

    required_fields: list[Name] = Field(default_factory=list)
    field_types: dict[Name, JsonType] = Field(default_factory=dict)
    constraints: dict[Name, FieldSpec] = Field(default_factory=dict)
    json_schema: dict[str, Any] | None = None
    items: dict[Name, list[Name]] = Field(default_factory=dict)
    login: bool = False
    user_types: Annotated[list[Name], Field(min_length=1)] | None = None
    rules: list[ConditionSpec] = Field(default_factory=list)


class ActionSchemaSpec(Strict):
    """Actions to check. `rules` and `warnings` hold for all that have the field. `userTypes` are the only ones."""

    actions: Annotated[dict[Name, ActionSpec], Field(min_length=1, max_length=1000)]
    fields: dict[Name, FieldSpec] = Field(default_factory=dict)
    rules: list[ConditionSpec] = Field(default_factory=list)
    warnings: list[ConditionSpec] = Field(default_factory=list)
    same_actions: SameActionsSpec | None = None
    user_types: Annotated[list[Name], Field(min_length=1)] | None = None


class Failure(NamedTuple):
    """Why an action is rejected. `more` is reported in `errors` only."""

    tag: str
    text: str
    field: str | None = None
    more: str = ""

    def inside(self, place: str) -> Failure:
        """Return the failure as that of an entry at a place of the action."""
        return self._replace(text=f"{place}: {self.text}", field=f"{place}.{self.field}" if self.field else place)


def matcher(schema: Mapping[str, Any]) -> Callable[[Any], list[Failure]]:
    """Return a function that lists an action's failures, or one if that takes long. Raises ImportError, ValueError."""
    validate, size = json_schema_validator(schema), size_of(schema)

    def failures(action: Any) -> list[Failure]:
        if size * size_of(action) <= _MOST_WORK:
            return [_failure(each, action) for each in validate.iter_errors(action)]
        try:
            validate.validate(action)  # it ends at the first error; `iter_errors` makes all before it returns one
        except ValueError as error:
            return [_failure(error, action)]
        return []

    return failures


def _failure(error: Any, action: Any) -> Failure:
    keyword, facts, path = error.kind.name, error.kind.as_dict(), list(error.instance_path)
    value = reduce(getitem, path, action)
    name = ".".join(map(str, [*path, facts["property"]] if keyword == "required" else path))
    text = f"Field {shown(name)}" if path else "Action"
    if keyword == "required":
        text = f"Missing required field: {shown(name)}"
    elif keyword == "type":
        text += f" must be {' or '.join(facts['types'])}, got {type_of(value)}"
    else:
        text += f" must satisfy {keyword} {shown(facts.get('limit', facts.get('format', '')))}".rstrip()
    return Failure(_STAGE_OF.get(keyword, STAGES[3]), text, name or None)


def problems(spec: ActionSchemaSpec) -> Iterator[tuple[Place, str, str]]:
    """Yield each problem beyond the shape, as (path, problem, remedy)."""
    lists: dict[Place, list[ConditionSpec]] = {("rules",): spec.rules, ("warnings",): spec.warnings}
    lists |= {("actions", name, "rules"): each.rules for name, each in spec.actions.items()}
    for path, conditions in lists.items():
        for index, each in enumerate(conditions):
            sides = (each.value, each.other_field, each.context, each.list, each.times_average)
            if sum(side is not None for side in sides) != 1:
                hint = "write exactly one of value, otherField, context, list, timesAverage"
                yield (*path, index), "not one other side", hint
            elif not each.context and (isinstance(each.value, list) or bool(each.list)) is not (each.op in AMONG):
                hint = "write in or notIn for a list, and only for one"
                yield (*path, index, "op"), "does not fit the other side", hint
    for name, action in spec.actions.items():
        for problem in _in_json_schema(action):
            yield ("actions", name, "jsonSchema"), *problem


def contradictions(spec: ActionSchemaSpec) -> Iterator[tuple[Place, str, str]]:
    """Yield what no value can fulfil, as `problems` does, and names that stand twice."""
    for name, form in spec.fields.items():
        yield from _in_form(("fields", name), form, {form.type})
    for action, it in spec.actions.items():
        place = ("actions", action)
        for index, name in enumerate(it.user_types or ()):
            if spec.user_types is not None and name not in spec.user_types:
                yield (*place, "userTypes", index), "not a type of spec.userTypes", "correct it, or add it there"
        for index, name in enumerate(it.required_fields):
            if name in it.required_fields[:index]:
                yield (*place, "requiredFields", index), "the same name again", "name it once"
        for name in {**it.field_types, **it.constraints, **it.items}:
            form, common = it.constraints.get(name, FieldSpec()), spec.fields.get(name, FieldSpec())
            member = "constraints" if name in it.constraints else "fieldTypes" if name in it.field_types else "items"
            array: JsonType | None = "array" if name in it.items else None
            yield from _in_form((*place, member, name), form, {form.type, common.type, it.field_types.get(name), array})


def _in_form(path: Place, form: FieldSpec, types: set[JsonType | None]) -> Iterator[tuple[Place, str, str]]:
    wanted, written = types - {None}, form.model_dump(by_alias=True, exclude_none=True)
    if len(wanted) > 1 and wanted != set(NUMBERS):
        yield path, "types that exclude each other", "write one type for the field"
    for low, high in (("min", "max"), ("minLength", "maxLength")):
        if low in written and high in written and written[low] > written[high]:
            yield (*path, low), f"greater than {high}", f"write {shown(written[high])} or less"
    for bound, fitting in _BOUNDS.items():
        if bound in written and wanted and wanted.isdisjoint(fitting):
            yield (*path, bound), "not for this type", f"remove it, or write type: {fitting[-1]}"


def _in_json_schema(action: ActionSpec) -> Iterator[tuple[str, str]]:
    try:
        if action.json_schema is not None and (action.required_fields or action.field_types or action.constraints):
            yield "beside another schema", "write one of the two forms"
        elif action.json_schema is not None:
            matcher(action.json_schema)
    except ImportError:
        yield "JSON Schema needs the extra `gateway`", 'run `pip install "oauthbroker[gateway]"`'
    except ValueError:
        yield "not a usable JSON Schema 2020-12", "correct it: no other documents, linear regexes"


def _check(schema: WrittenResource, _resources: WrittenResources) -> None:
    for path, what, hint in chain(problems(schema.spec), contradictions(schema.spec)) if schema.whole() else ():
        schema.refuse(path, what, hint)


KINDS = (ResourceKind(kind="ActionSchema", model=ActionSchemaSpec, check=_check),)
