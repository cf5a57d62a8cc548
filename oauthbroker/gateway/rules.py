"""Rulebooks validate actions in the fixed order (a) to (g), and report the first failure only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any, Final

from oauthbroker.gateway.spec import STAGES, ActionSchemaSpec, ActionSpec, ConditionSpec, Failure, FieldSpec, matcher
from oauthbroker.gateway.values import AMONG, FORMATS, NO_JSON, NUMBERS, is_json, key_of, shown, type_of

TYPE_FIELD: Final = "action_type"
_ORDERS: Final[Mapping[str, Any]] = {"below": lt, "atMost": le, "above": gt, "atLeast": ge}
_MOST_AVERAGED: Final = 1e15
_MOST_LISTED: Final = 20  # allowed values in a message
_NEARLY: Final = 1 - 2**-40  # so that 0.3 is three times 0.1


@dataclass(slots=True, kw_only=True)
class Inputs:
    """The inputs of a call beside its actions. The other side of a condition is found once."""

    context: Mapping[str, Any]
    lists: Mapping[str, Any]
    valid: list[list[dict[str, Any]]] = field(default_factory=list)  # each action, and the entries of its arrays
    _known: dict[int, Any] = field(default_factory=dict)

    def other_side(self, rule: ConditionSpec) -> Any:
        """Return the other side of a condition that does not name a field: a scalar, the keys of a list, or None."""
        if id(rule) not in self._known:
            found: Any = self.lists[rule.list] if rule.list else rule.value
            if rule.context:
                found = self.context.get(rule.context)
            if rule.times_average is not None:
                found = rule.times_average * average * _NEARLY if (average := self._average(rule.field)) else None
            if rule.op in AMONG and type(found) in {list, tuple}:  # entries are scalars, or objects with a member of
                names = rule.field, rule.field.rpartition("_")[2]  # the field's name or its last word
                plain = (each.get(names[0], each.get(names[1])) if type(each) is dict else each for each in found)
                found = frozenset(map(key_of, plain))
            self._known[id(rule)] = found
        return self._known[id(rule)]

    def _average(self, name: str) -> float:
        """Return the average of a field among the available products, else among the valid actions; else 0."""
        for listed in (self.lists["available_products"], list(chain.from_iterable(self.valid))):
            entries = listed if type(listed) in {list, tuple} else ()
            found: list[Any] = [each.get(name) for each in entries if type(each) is dict]
            if values := [each for each in found if type_of(each) in NUMBERS and 0 <= each <= _MOST_AVERAGED]:
                return float(sum(values) / len(values))
        return 0.0


def holds(rule: ConditionSpec, action: Mapping[str, Any], inputs: Inputs) -> bool | None:
    """Tell whether a condition holds. None where the action lacks a field of it, or the call lacks its list."""
    if rule.field not in action or (rule.other_field or rule.field) not in action:
        return None
    right = action[rule.other_field] if rule.other_field else inputs.other_side(rule)
    if right is None and rule.list:
        return None
    left, other = key_of(action[rule.field]), right if rule.op in AMONG else key_of(right)
    if left is None or other is None:
        return False
    if rule.op in AMONG:
        return isinstance(other, frozenset) and (left in other) is (rule.op == "in")
    if rule.op in _ORDERS:
        return left[0] == other[0] != "boolean" and bool(_ORDERS[rule.op](left[1], other[1]))
    return (left == other) is (rule.op == "equals")


class ActionRules:
    def __init__(self, spec: ActionSpec, domain: ActionSchemaSpec) -> None:
        self._spec, self._rules = spec, (*domain.rules, *spec.rules)
        typed = {name: FieldSpec(type=wanted) for name, wanted in spec.field_types.items()}
        arrays = dict.fromkeys(spec.items, FieldSpec(type="array"))
        self._forms: dict[str, list[tuple[FieldSpec, frozenset[Any]]]] = {}  # with the keys of its enum
        for forms in (arrays, typed, spec.constraints, domain.fields):
            for name, form in forms.items():
                self._forms.setdefault(name, []).append((form, frozenset(map(key_of, form.enum or ()))))
        entries = {name: ActionSpec.model_validate({"requiredFields": it}) for name, it in spec.items.items()}
        self._items = {name: ActionRules(entry, domain) for name, entry in entries.items()}
        self._known_users = domain.user_types
        self._schema = (lambda _: ()) if spec.json_schema is None else matcher(spec.json_schema)

    def failures(self, action: dict[str, Any], inputs: Inputs) -> Iterator[Failure]:
        """Yield the failures in order: (c) required (d) types (e) formats (f) ranges, then (g) business rules."""
        yield from sorted(self.forms_broken(action), key=lambda each: STAGES.index(each.tag))
        yield from self._in_business(action, inputs)

    def forms_broken(self, action: dict[str, Any]) -> Iterator[Failure]:
        """Yield the failures of (c) to (f), those of one stage in their order."""
        for name in self._spec.required_fields:
            if action.get(name) is None:
                yield Failure(STAGES[0], f"Missing required field: {shown(name)}", name)
        for name, value in action.items():
            for form, allowed in self._forms.get(name, ()):
                actual = type_of(value)
                if form.type and actual != form.type and (form.type, actual) != ("number", "integer"):
                    yield Failure(STAGES[1], f"Field {shown(name)} must be {form.type}, got {actual}", name)
                if form.format and actual == "string" and not FORMATS[form.format].fullmatch(value):
                    yield Failure(STAGES[2], f"Field {shown(name)} must match format {form.format}", name)
                if text := _beyond(form, value, allowed):
                    yield Failure(STAGES[3], f"Field {shown(name)} must {text}", name)
        yield from self._schema(action) if is_json(action) else [Failure(STAGES[1], NO_JSON)]
        for place, rules, entry in self.entries(action):
            if type(entry) is dict:
                yield from (each.inside(place) for each in rules.forms_broken(entry))
            else:
                yield Failure(STAGES[1], f"Field {place} must be object, got {type_of(entry)}", place)

    def entries(self, action: dict[str, Any]) -> Iterator[tuple[str, ActionRules, Any]]:
        """Yield the entries of the arrays that have rules of their own, each with its place."""
        for name, rules in self._items.items():
            listed = found if type(found := action.get(name)) is list else ()
            yield from ((f"{shown(name)}.{at}", rules, entry) for at, entry in enumerate(listed))

    def rules_broken(self, action: dict[str, Any], inputs: Inputs) -> Iterator[tuple[Failure, bool]]:
        """Yield the failures of rules, each with whether its rule needs a list."""
        for rule in self._rules:
            if holds(rule, action, inputs) is False:
                yield Failure("BUSINESS_LOGIC_VIOLATION", rule.text, rule.field), bool(rule.list)
        for place, rules, entry in self.entries(action):
            yield from ((failed.inside(place), listed) for failed, listed in rules.rules_broken(entry, inputs))

    def _in_business(self, action: dict[str, Any], inputs: Inputs) -> Iterator[Failure]:
        """Yield the failures of rules that need a list, then of the user's rights, then of all other rules."""
        failed = list(self.rules_broken(action, inputs))
        yield from (it for it, is_listed in failed if is_listed)
        yield from (Failure("UNAUTHORIZED_ACTION", text) for text in self._without_right(inputs.context))
        yield from (it for it, is_listed in failed if not is_listed)

    def _without_right(self, context: Mapping[str, Any]) -> Iterator[str]:
        user_type, wanted = context.get("user_type"), self._spec.user_types
        if self._known_users is not None and user_type is not None and user_type not in self._known_users:
            yield f"Unknown user_type: {shown(user_type)}"
        if self._spec.login and context.get("is_logged_in") is not True:
            yield "Action requires a login"
        elif self._spec.login and not (type(user_id := context.get("user_id")) is str and user_id):
            yield "Action requires the user_id of the login"
        if wanted is not None and user_type not in wanted:
            yield f"Action requires user_type {' or '.join(wanted)}"


def _beyond(form: FieldSpec, value: Any, allowed: frozenset[Any]) -> str:
    """Return the bound that a value breaks, as the end of a sentence, or an empty text."""
    low, high, verb, size, unit = form.min, form.max, "be", value, ""
    if type(value) is str:
        low, high, verb, size, unit = form.min_length, form.max_length, "have", len(value), " characters"
    if type_of(size) in NUMBERS and ((low is not None and size < low) or (high is not None and size > high)):
        either = f"at least {low}" if high is None else f"between {low} and {high}"
        bounds = f"at most {high}" if low is None else either
        return f"{verb} {bounds}{unit}, got {shown(size)}"
    if form.enum is not None and key_of(value) not in allowed:
        return f"be one of {', '.join(map(shown, form.enum[:_MOST_LISTED]))}{', …' * (len(form.enum) > _MOST_LISTED)}"
    return ""


class Rulebook:
    """All actions of a domain. `allowed` are their types, unless they are those that have a schema."""

    def __init__(self, spec: ActionSchemaSpec, allowed: Sequence[str] = ()) -> None:
        self.spec, self._allowed = spec, dict.fromkeys(allowed or spec.actions)
        self._actions = {name: ActionRules(each, spec) for name, each in spec.actions.items()}

    def failure(self, action: Any, inputs: Inputs) -> Failure | None:
        """Return why an action is rejected, or None: (a) its type is known (b) it has a schema, then (c) to (g)."""
        name = action.get(TYPE_FIELD) if type(action) is dict else None
        if type(name) is not str or name not in self._allowed:
            more = f". Allowed types: {', '.join(self._allowed)}"
            return Failure("UNKNOWN_ACTION_TYPE", f"Unknown action_type: {shown(name)}", TYPE_FIELD, more=more)
        if name not in self._actions:
            return Failure("SCHEMA_NOT_FOUND", f"No schema defined for action_type: {name}", TYPE_FIELD)
        return next(self._actions[name].failures(action, inputs), None)

    def parts(self, action: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a valid action and the entries of its arrays. Warnings are for all of them."""
        return [action, *(entry for _, _, entry in self._actions[action[TYPE_FIELD]].entries(action))]
