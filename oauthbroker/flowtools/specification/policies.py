"""Policies as declarations: loaded with all problems at once, their conditions checked. Three come with the product."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from oauthbroker.flowtools.specification.expression_text import ExpressionRefused
from oauthbroker.flowtools.specification.expressions import DYNAMIC, NUMBER, TEXT, TRUTH, Expression, Names, Scope
from oauthbroker.flowtools.specification.source import FlowRefused, input_files, read_input, read_source, shape_problems
from oauthbroker.plugins import ConfigProblem, SourcePlace

# What a condition can read, beside `parameters`.
_NUMBERS: Final = ("rows", "amount", "requestsPerMinute", "writesOutsideTransaction", "paymentsToRollBack")
FACTS: Final = Names(types=dict.fromkeys(_NUMBERS, NUMBER) | {"input": DYNAMIC})
_NEEDS: Final = {"rowLimit": "maxRows", "budgetCheck": "maxAmount", "rateLimit": "maxRequestsPerMinute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A declaration. It triggers when `condition` is true; `action` is then block, warn or escalate."""

    name: str
    version: int
    description: str
    type: str
    condition: str
    action: str
    message: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


PRODUCT_POLICIES: Final[Mapping[str, Policy]] = {
    each["name"]: Policy(**each)
    for each in json.loads(files(__package__).joinpath("product-policies.json").read_text("utf-8"))
}


def load_policy(raw: bytes, file: str) -> Policy:
    """Load a policy from the bytes of a JSON or YAML file. Raises FlowRefused with every problem."""
    source = read_source(raw, file)
    problems = list(shape_problems(source, "Policy"))
    data: dict[str, Any] = source.data if isinstance(source.data, dict) else {}
    if data.get("name") in PRODUCT_POLICIES:
        problems.append(source.problem(("name",), "a policy of the product", "choose another name"))
    needed = _NEEDS.get(str(data.get("type")), "")
    parameters = data.get("parameters", {})
    if needed and isinstance(parameters, dict) and needed not in parameters:
        hint = f"a policy of type {data['type']} requires it"
        problems.append(source.problem(("parameters", needed), "missing", hint))
    if not problems:
        policy = Policy(**data)
        try:
            check_condition(policy)
        except ExpressionRefused as error:
            problems.append(source.problem(("condition",), f"{error.what} (character {error.column})", error.hint))
    if problems:
        raise FlowRefused(problems)
    return policy


def input_policies(paths: list[Path]) -> tuple[list[Policy], list[ConfigProblem]]:
    """Return the policies and the problems of those that cannot be loaded. A second one of a name is a problem."""
    own: dict[str, Policy] = {}
    problems: list[ConfigProblem] = []
    for file in input_files(paths):
        try:
            loaded = load_policy(read_input(file), str(file))
        except FlowRefused as refused:
            problems += refused.problems
            continue
        if loaded.name in own:
            what, hint = "the name of another policy", "give each policy a name of its own"
            problems.append(ConfigProblem.at(SourcePlace(str(file), 1, 1), "name", what, hint))
        own.setdefault(loaded.name, loaded)
    return list(own.values()), problems


def check_condition(policy: Policy) -> Expression:
    """Check a policy's condition against the facts and its parameters, and return it. Raises ExpressionRefused."""
    kinds = {bool: TRUTH, str: TEXT}
    own = {f"parameters.{name}": kinds.get(type(value), NUMBER) for name, value in policy.parameters.items()}
    return Scope(FACTS | Names(types=own)).compile(policy.condition, TRUTH)


def policies_by_name(policies: Iterable[Policy] = ()) -> Mapping[str, Policy]:
    """Return the product's policies and those given, by name."""
    return {**PRODUCT_POLICIES, **{policy.name: policy for policy in policies}}
