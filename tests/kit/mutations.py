"""Change a syntax tree in one place at a time: what `make mutants` tries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

SWAPPED: dict[type[ast.AST], type[Any]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
CONDITION = (ast.If, ast.IfExp, ast.While)
FOR_PEOPLE = frozenset({"log", "note", "hint", "span"})  # texts that other tests look at


def mutations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, change), each time with the tree changed in one place. It is as before at the end."""
    for node, field, index, line in _places(tree):
        holder: Any = getattr(node, field) if index is not None else node
        old: Any = holder[index] if index is not None else getattr(node, field)
        for new in _instead(node, field, old):
            _put(holder, field, index, _placed(new, line))
            yield line, f"{_text(old)} -> {_text(new)}"
            _put(holder, field, index, old)


def _put(holder: Any, field: str, index: int | None, value: Any) -> None:
    if index is not None:
        holder[index] = value
    else:
        setattr(holder, field, value)


def _placed(new: Any, line: int) -> Any:
    if not hasattr(new, "lineno") and isinstance(new, ast.expr | ast.stmt):
        new.lineno = new.end_lineno = line
        new.col_offset = new.end_col_offset = 0
    return ast.fix_missing_locations(new)


def _text(node: Any) -> str:
    text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else type(node).__name__
    return " ".join(text.split())[:100]


def _places(node: ast.AST, line: int = 0) -> Iterator[tuple[ast.AST, str, int | None, int]]:
    """Yield every place of the tree that a mutation may change, but no annotation, decorator, docstring or text for
    people."""
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_params", "bases"} or _is_for_people(node, field):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not isinstance(child, ast.Import | ast.ImportFrom):
                at = getattr(child, "lineno", line)
                if not (_is_text(child) or _is_literal(child)):
                    yield node, field, index, at
                    yield from _places(child, at)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_literal(node: ast.AST) -> bool:
    """Tell whether it is a type's words, which a running program never reads."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"


def _is_for_people(node: ast.AST, field: str) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in FOR_PEOPLE
    if isinstance(node, ast.Call) and field in {"args", "keywords"}:
        names = {each.attr for each in ast.walk(node.func) if isinstance(each, ast.Attribute)}
        names |= {each.id for each in ast.walk(node.func) if isinstance(each, ast.Name)}
        return bool(names & {*FOR_PEOPLE, "ValueError", "warning"})
    return False


def _instead(parent: ast.AST, field: str, old: Any) -> Iterator[ast.AST]:
    """Yield what may stand instead of a node."""
    if type(old) in SWAPPED and not isinstance(parent, ast.AugAssign):
        yield SWAPPED[type(old)]()
    if field == "test" and isinstance(parent, CONDITION):
        yield ast.UnaryOp(ast.Not(), old)
    match old:
        case ast.BoolOp(values=values) if len(values) > 1:
            for each in values:
                rest = [other for other in values if other is not each]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(old.op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield old.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str() as value) if not isinstance(parent, ast.JoinedStr):
            yield ast.Constant(value + "X")
        case ast.Constant(value=bytes() as value):
            yield ast.Constant(value + b"X")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise():
            yield ast.Pass()
        case _:
            pass
