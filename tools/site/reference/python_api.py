"""The pages of the Python API: a section for each public name, from its signature and its docstring."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from types import BuiltinFunctionType, ModuleType
from typing import Any

from tools.site.reference.markdown import block, code, heading, prose, slug, table
from tools.site.stage import ROOT

FACES = (
    "oauthbroker",
    "oauthbroker.capability",
    "oauthbroker.client",
    "oauthbroker.flowtools",
    "oauthbroker.mcp",
    "oauthbroker.plugins",
    "oauthbroker.testing",
    "oauthbroker.testing.flow_adapter_contract",
    "oauthbroker.testing.key_provider_contract",
    "oauthbroker.tools",
)
LONGEST = 100  # of a signature on one line
LONGEST_VALUE = 60  # of a default: a longer one is a list of internal names


INTRO = "# Python\n\nThe modules with public names. [Compatibility](../../docs/compatibility.md#python) says which of them stay.\n"
_EXAMPLE = re.compile(r"^class \w+\(.*", re.DOTALL | re.MULTILINE)  # the end of a docstring
_PAGE = re.compile(r"(?<![\w/.-])`?((?:[\w-]+/)*[\w-]+\.md)`?")


def pages() -> dict[str, str]:
    found: dict[str, str] = {}
    owners: dict[int, str] = {}
    for face in FACES:
        found[f"python/{face}.md"] = _page(face, import_module(face), owners)
    rows = ((f"[`{face}`]({face}.md)", _first(found[f"python/{face}.md"])) for face in FACES)
    return found | {"python/README.md": f"{INTRO}\n{table(('module', 'names'), rows)}"}


def _page(face: str, module: ModuleType, owners: dict[int, str]) -> str:
    """Return the page of a module. A name that an earlier page explains leads there: `owners` knows these pages."""
    lines = [f"# `{face}`\n", _text(module.__doc__, face)]
    for name in sorted(names(module), key=str.lower):
        named = getattr(module, name)
        lines.append(heading(2, code(name), slug(name)))
        owner = owners.setdefault(id(named), face)
        if owner != face:
            lines.append(f"The same as [`{owner}.{name}`]({owner}.md#{slug(name)}).\n")
        elif inspect.isclass(named):
            lines += _class(name, named)
        elif inspect.isroutine(named):
            lines += [block(_signature(name, named), "python"), _text(named.__doc__)]
        else:
            plain = named.__origin__ if hasattr(named, "__metadata__") else named  # without what only pydantic reads
            lines.append(block(f"{name} = {_value(plain)}", "python"))
    return "\n".join(lines)


def _first(page: str) -> str:
    """Return the first sentence of a page."""
    return re.split(r"(?<=\.) ", " ".join(page.split("\n\n")[1].split()))[0]


def names(module: ModuleType) -> list[str]:
    """Return the public names of a module: those that it lists, else the classes that it defines."""
    own = (name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__)
    return list(getattr(module, "__all__", ())) or [name for name in own if name[0].isupper()]


def _class(name: str, found: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
    made = (
        [_signature(name, vars(found)["__init__"]).removeprefix("def ").removesuffix(" -> None")]
        if _is_made(found)
        else []
    )
    yield block("\n".join([f"class {name}({bases})".removesuffix("()"), *made]), "python")
    yield _text(inspect.getdoc(found) if found.__doc__ and not is_generated(found) else "")
    if issubclass(found, enum.Enum):
        yield table(("name", "value"), ((code(each.name), code(str(each.value))) for each in found))
    elif rows := [*_fields(found)]:
        yield table(("field", "type", "default"), rows)
    if attributes := table(("attribute", "type", "meaning"), _attributes(found)):
        yield attributes
    for member, value in members(found):
        yield heading(3, code(f"{name}.{member}"), slug(name, member))
        read = getattr(value, "fget", None) or getattr(value, "func", None)  # of a property, of a cached one
        if read is not None:
            yield block(f"{member}: {_annotation(inspect.signature(read).return_annotation)}", "python")
        else:
            yield block(_signature(member, getattr(value, "__func__", value), value), "python")
        if not isinstance(getattr(value, "__func__", value), (partial, BuiltinFunctionType)):  # their text is Python's
            yield _text(value.__doc__)


def _is_made(found: type) -> bool:
    """Tell whether callers make objects of a class by an `__init__` that it writes itself."""
    written = vars(found).get("__init__")
    return getattr(written, "__module__", "").startswith("oauthbroker") and not dataclasses.is_dataclass(found)


def _attributes(found: type) -> Iterator[tuple[str, str, str]]:
    """Yield the public attributes of a class that its source annotates in `__init__`, or explains by a text below."""
    for owner in (each for each in reversed(found.__mro__) if each.__module__.startswith("oauthbroker")):
        body = _source(owner)
        for each, after in pairwise(body):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(each, ast.Assign) and isinstance(text, ast.Constant):
                meaning = " ".join(_text(str(text.value)).split())
                yield code(ast.unparse(each.targets[0])), code(_made_type(each.value)), meaning
        starts = (each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
        for line in (line for start in starts for line in start.body if isinstance(line, ast.AnnAssign)):
            if not (name := ast.unparse(line.target).removeprefix("self.")).startswith("_"):
                yield code(name), code(ast.unparse(line.annotation)), ""


def _source(found: type) -> list[ast.stmt]:
    """Return the statements of a class's body; none of a generated class."""
    try:
        parsed = ast.parse(dedent(inspect.getsource(found))).body[0]
    except (OSError, TypeError):
        return []
    return parsed.body if isinstance(parsed, ast.ClassDef) else []


def _made_type(value: ast.expr) -> str:
    """Return the type in `Member[Type]()`; empty for another value."""
    made = value.func if isinstance(value, ast.Call) else None
    return ast.unparse(made.slice) if isinstance(made, ast.Subscript) else ""


def is_generated(found: type) -> bool:
    """Tell whether the docstring is the one that dataclass makes."""
    return dataclasses.is_dataclass(found) and (found.__doc__ or "").startswith(f"{found.__name__}(")


def _fields(found: type) -> Iterator[tuple[str, str, str]]:
    if dataclasses.is_dataclass(found):
        for each in dataclasses.fields(found):
            if not each.name.startswith("_"):
                made = each.default_factory is not dataclasses.MISSING
                default = "" if each.default is dataclasses.MISSING else code(_value(each.default))
                yield code(each.name), code(_annotation(each.type)), "made anew" if made else default


def members(found: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that our own classes give it, in the order of their names."""
    ours = [each for each in reversed(found.__mro__) if each.__module__.startswith("oauthbroker")]
    members = {name: value for each in ours for name, value in vars(each).items()}
    for name, value in sorted(members.items()):
        is_code = inspect.isfunction(value) or isinstance(value, (property, cached_property, classmethod, staticmethod))
        if is_code and not name.startswith("_"):
            yield name, value


def _signature(name: str, called: Callable[..., Any], declared: Any = None) -> str:
    """Return a signature as one would write it, on several lines if it is long."""
    if inspect.isbuiltin(called):
        return f"def {name}(...)"
    signature = inspect.signature(called)
    taken = [str(each) for each in _starred(signature) if each not in {"self", "cls"}]
    marks = {classmethod: "@classmethod\n", staticmethod: "@staticmethod\n"}
    lead = next((mark for kind, mark in marks.items() if isinstance(declared, kind)), "")
    lead += "async def " if inspect.iscoroutinefunction(called) else "def "
    back = "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    if inspect.isgeneratorfunction(inspect.unwrap(called)) and not inspect.isgeneratorfunction(called):
        back = back.replace("Iterator[", "AbstractContextManager[")
    if inspect.isasyncgenfunction(inspect.unwrap(called)) and not inspect.isasyncgenfunction(called):
        back = back.replace("AsyncIterator[", "AbstractAsyncContextManager[")
    line = f"{lead}{name}({', '.join(taken)}){back}"
    return (
        line if len(line) <= LONGEST else f"{lead}{name}(\n" + "".join(f"    {each},\n" for each in taken) + f"){back}"
    )


def _starred(signature: inspect.Signature) -> Iterator[str]:
    named_only = False
    for each in signature.parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            named_only = True
        elif each.kind is each.KEYWORD_ONLY and not named_only:
            named_only = True
            yield "*"
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        noted = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        equals = " = " if noted else "="
        yield f"{stars}{each.name}{noted}" + ("" if each.default is each.empty else f"{equals}{_value(each.default)}")


def _annotation(found: Any) -> str:
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _value(found: Any) -> str:
    """Return a default as it is written, or what kind of thing it is where that would name a place in memory."""
    text = repr(found)
    return f"<{type(found).__name__}>" if " at 0x" in text else text if len(text) <= LONGEST_VALUE else "..."


def _text(docstring: str | None, face: str = "") -> str:
    """Return a docstring as Markdown. A page that it names is a link; `README.md` is that of the package `face`."""
    folder = face.replace(".", "/")

    def linked(found: re.Match[str]) -> str:
        path = next(
            (each for each in (found[1], f"{folder}/{found[1]}") if "/" in each and (ROOT / each).is_file()), ""
        )
        return f"[{found[1]}](../../{path})" if path else found[0]

    text = inspect.cleandoc(docstring or "")
    example = _EXAMPLE.search(text)
    paragraphs = (text[: example.start()] if example else text).strip().split("\n\n")
    lines = [f"{_PAGE.sub(linked, prose(each))}\n" for each in paragraphs if each]
    return "\n".join([*lines, block(example[0], "python")] if example else lines)
