"""The gateway in Python: `validate` validates actions, and `gate` one tool call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml

from oauthbroker.gateway.rules import TYPE_FIELD, Inputs, Rulebook, holds
from oauthbroker.gateway.spec import ActionSchemaSpec, ActionSpec, contradictions, problems
from oauthbroker.gateway.values import is_json, type_of
from oauthbroker.plugins import two_sentences

_TEXT: Final = json.JSONEncoder(sort_keys=True, check_circular=False)


def validate(
    action_requests: Any,
    action_schema: Any = None,
    user_context: Any = None,
    available_products: Any = None,
    available_coupons: Any = None,
    *,
    details: bool = False,
) -> dict[str, Any]:
    """Validate proposed actions one by one. Pure: it changes no argument, and the answer holds the actions themselves.

    `action_schema` is a `rulebook`, or the schemas by type; None means the default ones. `details` adds the failure tag
    and the field of each rejected action. Never raises. Without actions the lists are empty and `error` says so.
    """
    book = action_schema if isinstance(action_schema, Rulebook) else _book(action_schema)
    lists = {"available_products": available_products, "available_coupons": available_coupons}
    inputs = Inputs(context=user_context if type(user_context) is dict else {}, lists=lists)
    actions = action_requests if type(action_requests) in {list, tuple} else ()
    failures = [book.failure(each, inputs) for each in actions]
    valid = [each for each, failure in zip(actions, failures, strict=True) if failure is None]
    inputs.valid = [book.parts(each) for each in valid]
    warnings = iter(_warnings(book, inputs))
    results: list[dict[str, Any]] = []
    for index, it in enumerate(failures):
        errors, found = ([it.text + it.more], []) if it else ([], next(warnings))
        results.append({"action_index": index, "is_valid": it is None, "errors": errors, "warnings": found})
    rejected = [(index, it) for index, it in enumerate(failures) if it]
    summary = {"total_count": len(actions), "valid_count": len(valid), "rejected_count": len(rejected)}
    answer = {
        "validation_results": results,
        "valid_actions": valid,
        "rejected_actions": [{"action": actions[index], "reason": it.text} for index, it in rejected],
        "validation_summary": {**summary, "warning_count": sum(len(each["warnings"]) for each in results)},
    }
    if details:
        answer["details"] = [{"action_index": index, "tag": it.tag, "field": it.field} for index, it in rejected]
    return answer if actions else {**answer, "error": "action_requests must be a non-empty array"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """Whether a tool call may run. `reason` is a sentence for the model, `tag` a failure tag."""

    allowed: bool
    reason: str = ""
    tag: str = ""
    warnings: tuple[str, ...] = ()


def gate(tool: str, arguments: Any, action_schema: Any = None, **inputs: Any) -> GateDecision:
    """Validate one tool call before it runs. `inputs` as for `validate`. `arguments` cannot change the action's
    type."""
    if type(arguments) is not dict:
        reason = f"Arguments must be object, got {type_of(arguments)}"
        return GateDecision(allowed=False, reason=reason, tag="TYPE_MISMATCH")
    answer = validate([{**arguments, TYPE_FIELD: tool}], action_schema, **inputs, details=True)
    if rejected := answer["rejected_actions"]:
        return GateDecision(allowed=False, reason=rejected[0]["reason"], tag=answer["details"][0]["tag"])
    return GateDecision(allowed=True, warnings=tuple(answer["validation_results"][0]["warnings"]))


def rulebook(spec: ActionSchemaSpec | Mapping[str, Any]) -> Rulebook:
    """Make a rulebook of the `spec` of an ActionSchema, written as in YAML or read from a bundle. Raises ValueError."""
    parsed = spec if isinstance(spec, ActionSchemaSpec) else ActionSchemaSpec.model_validate(spec)
    for path, what, hint in chain(problems(parsed), contradictions(parsed)):
        raise ValueError(f"{'.'.join(map(str, path))}: {two_sentences(what, hint)}")
    return Rulebook(parsed)


@cache
def default_rulebook() -> Rulebook:
    """Return the nine actions of the specification."""
    return rulebook(yaml.safe_load(Path(__file__).with_name("default.yaml").read_text("utf-8")))


def _book(schemas: Any) -> Rulebook:
    """Return the rulebook of schemas by type. They narrow the default: its types, required fields, fields, items, rules
    and logins stay. An entry that is no schema is left out, so that no action of its type is valid."""
    default, found = default_rulebook(), dict[str, ActionSpec]()
    if schemas is None:
        return default
    for name, ours in default.spec.actions.items():
        entry = schemas.get(name) if type(schemas) is dict else None
        with suppress(ValueError):
            spec = ActionSpec.model_validate(entry if is_json(entry) else None, by_name=True, by_alias=False)
            if not any(problems(ActionSchemaSpec(actions={name: spec}))):
                found[name] = spec.model_copy(
                    update={
                        "required_fields": [*spec.required_fields, *ours.required_fields],
                        "items": {**spec.items, **ours.items},
                        "login": spec.login or ours.login,
                    }
                )
    return Rulebook(default.spec.model_copy(update={"actions": found}), tuple(default.spec.actions))


def _warnings(book: Rulebook, inputs: Inputs) -> list[list[str]]:
    """Return the warnings of each valid action. Actions are the same if they are written alike as JSON."""
    found = [
        [it.text for it in book.spec.warnings if any(holds(it, part, inputs) for part in parts)]
        for parts in inputs.valid
    ]
    same = book.spec.same_actions
    if same is not None and len(inputs.valid) >= same.count:
        texts = [_TEXT.encode(each) for each, *_ in inputs.valid]
        count = Counter(texts)
        for index, text in enumerate(texts):
            found[index] += [same.text] if count[text] >= same.count else []
    return found
