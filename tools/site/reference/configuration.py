"""The pages of the configuration: a page for each kind of resource. Fields, types and bounds are those of the JSON Schema,
which is made of the models; meanings and defaults are those of the tables in docs/, where they are written once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oauthbroker.config.bundle.schema import FILE_NAME, bundle_schema
from tools.site.reference.markdown import block, code, heading, prose, slug, table
from tools.site.stage import ROOT

INTRO = f"""\
# Kinds of resources

Made from the models that read a bundle, with the kinds of the plug-ins that come with oauthbroker. A field is one path:
`[]` is each element of a list, and `NAME` each key of a map. [Configuration](../../docs/configuration.md) says how files are
read. Your editor reads [the JSON Schema]({FILE_NAME}); `oauthbroker config schema` prints it. A blank default means that the
field is not set.

"""
VALUES = {"ValueSource": "value", "OutsideSource": "outside value", "ObjectRef": "reference"}  # each has a section
SPOKEN = {"": "empty", " ": "space", ", ": "`,` and a space", "|": "a bar"}  # values that no table shows as code
QUIRKS = "quirks"
SECTIONS = {"Quirks": QUIRKS, "Serving": "FlowService"}  # headings that name a kind's table in other words
PRESETS = "the preset's"  # a default that holds for each part of a field, too
GROUP = 16  # fields of one field that get a section of their own
HEAD = ("field", "type", "default", "meaning")
Schema = Mapping[str, Any]
Meaning = tuple[str, str, str, str]
_ROW = re.compile(r"\| (`[^|]+`(?:, `[^|]+`)*) \| ((?:\\\||[^|])+) \|(?: ((?:\\\||[^|])*)\|)?$")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)]+)(?=\))")


def pages() -> dict[str, str]:
    schema = bundle_schema()
    definitions: Schema = schema["$defs"]
    found = kinds(schema)
    rows = [(f"[{code(kind)}]({kind}.md)", prose(_summary(_about(spec, definitions)))) for kind, spec in found.items()]
    index = [INTRO + table(("kind", "meaning"), rows)]
    for name, title in VALUES.items():
        inner = fields(definitions[name], definitions)
        index += [heading(2, title.capitalize(), slug(title)), f"{prose(definitions[name]['description'])}\n"]
        index.append(table(HEAD[:2], [(code(path), _type(each)) for path, each in inner.items()]))
    meanings = [*_meanings()]
    made = {"README": "\n".join(index)}
    for kind, spec in found.items():
        made[kind] = _page(kind, _about(spec, definitions), fields(spec, definitions), meanings)
    return {f"configuration/{name}.md": text for name, text in made.items()}


def kinds(schema: Schema) -> dict[str, Schema]:
    """Return the schema of each kind's `spec`."""
    return {it["if"]["properties"]["kind"]["const"]: it["then"]["properties"]["spec"] for it in schema["then"]["allOf"]}


def fields(schema: Schema, definitions: Schema) -> dict[str, Schema]:
    """Return the schema of each field by its path. Values and references, and a schema inside itself, are not entered."""
    return dict(_fields(schema, definitions, "", ()))


def _fields(schema: Schema, definitions: Schema, path: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Schema]]:
    if name := _name(schema):
        if name not in inside and not (path and name in VALUES):
            yield from _fields(definitions[name], definitions, path, (*inside, name))
        return
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        yield from _fields(part, definitions, path, inside)
    for name, each in schema.get("properties", {}).items():
        at = f"{path}.{name}".removeprefix(".")
        yield at, each
        yield from _fields(each, definitions, at, inside)
    for inner in _values_of_map(schema):
        yield from _fields(inner, definitions, f"{path}.NAME", inside)
    if "items" in schema:
        yield from _fields(schema["items"], definitions, f"{path}[]", inside)


def _values_of_map(schema: Schema) -> list[Schema]:
    named = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return [each for each in named if isinstance(each, dict)]


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _about(spec: Schema, definitions: Schema) -> str:
    """Return what the kind's models say of it."""
    parts = [definitions[_name(each)].get("description", "") for each in spec.get("allOf", (spec,))]
    return " ".join(" ".join(filter(None, parts)).split())


def _summary(about: str) -> str:
    """Return the first sentence of a kind's text."""
    return re.split(r"(?<=\.) ", about)[0]


def _page(kind: str, about: str, found: Mapping[str, Schema], meanings: Iterable[Meaning]) -> str:
    lines = [f"# {kind}\n", *([f"{prose(about)}\n"] if about else []), *_example(kind)]
    words = _words(kind, found, meanings)
    sections: dict[str, list[tuple[str, ...]]] = {"": []}
    for path, schema in found.items():
        default, meaning = words.get(path, ("", prose(schema.get("description", ""))))
        if meaning or not any(each.startswith((f"{path}.", f"{path}[]")) for each in found):
            whole = "" if meaning else _whole(path, words)
            if whole and words[whole][0].startswith(PRESETS):
                default = PRESETS
            meaning = meaning or (f"see {code(whole)}" if whole else "")
            group = re.split(r"[.\[]", path)[0]
            inner = sum(each.startswith((f"{group}.", f"{group}[]")) for each in found)
            row = (code(path), _type(schema), default or _default(schema), meaning)
            sections.setdefault(group if inner >= GROUP else "", []).append(row)
    for group, rows in sections.items():
        spec = code(f"spec.{group}".removesuffix("."))
        lines += [heading(2, f"Fields of {spec}", slug("fields", group)), table(HEAD, rows)]
    return "\n".join(lines)


def _whole(path: str, words: Iterable[str]) -> str:
    """Return where a field without words of its own is explained: at the field that it is a part of."""
    return max((each for each in words if path.startswith((f"{each}.", f"{each}[]"))), key=len, default="")


def _default(schema: Schema) -> str:
    found = schema.get("default")
    return "" if found in {None, ""} else code(str(found).lower() if isinstance(found, bool) else str(found))


def _words(kind: str, found: Iterable[str], meanings: Iterable[Meaning]) -> dict[str, tuple[str, str]]:
    """Return default and meaning of the fields that a table below the kind's heading has, or that of the quirks. A row of
    an inner table has the end of its field's path."""
    words: dict[str, tuple[str, str]] = {}
    for section, name, meaning, default in meanings:
        exact = f"{section}.{name}" if section == QUIRKS else name
        if section == QUIRKS or kind in re.split(", | and ", section):
            ends = () if exact in found or section == QUIRKS else [path for path in found if _ends(path, name)]
            words |= dict.fromkeys([exact, *ends], (default, meaning))
    return words


def _ends(path: str, name: str) -> bool:
    """Tell whether a path ends with the name of a row, which leaves out `[]` and `NAME`."""
    return f".{path.replace('[]', '').replace('.NAME', '')}".endswith(f".{name}")


def _meanings() -> Iterator[Meaning]:
    """Yield section, field, meaning and default of each row of a table of fields in docs/."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        section, inside = "", False
        for line in page.read_text("utf-8").splitlines():
            if line.startswith("## "):
                section = SECTIONS.get(line[3:], line[3:])
            inside = line.startswith(("| field | mean", "| quirk | mean")) or (inside and line.startswith("|"))
            if inside and (row := _ROW.match(line)):
                meaning, default = (from_here(each or "", page.name) for each in row.groups()[1:])
                for name in re.findall(r"`([^`]+)`", row[1]):
                    yield section, name.removesuffix("[]"), meaning, default or ""


def from_here(cell: str, page: str, docs: str = "../../docs/") -> str:
    """Return a cell of a page in docs/ for a page of the reference, from which `docs` leads there."""
    linked = _LINK.sub(lambda found: f"{docs}{page if found[1][0] == '#' else ''}{found[1]}", cell)
    return linked.replace("([below](", "([how](").replace(" (below)", "").strip().replace("\\|", "|")


def _example(kind: str) -> list[str]:
    """Return the first resource of the kind that a page or an example shows."""
    pages = [ROOT / "docs" / "configuration.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in [*pages, *sorted((ROOT / "examples").rglob("*.yaml"))]:
        text = page.read_text("utf-8")
        for found in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if page.suffix == ".md" else [text]:
            for part in re.split(r"(?m)^---$", found):
                if re.search(rf"(?m)^kind: {kind}$", part):
                    where = page.relative_to(ROOT).as_posix()
                    return [f"From [{where}](../../{where}):\n", block(part.strip(), "yaml")]
    return []


def _type(schema: Schema) -> str:
    """Return a field's type in words, with its bounds."""
    if name := _name(schema):
        return f"[{VALUES[name]}](README.md#{slug(VALUES[name])})" if name in VALUES else "object"
    if either := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, either)))
    if "const" in schema or "enum" in schema:
        return ", ".join(SPOKEN.get(each, code(str(each))) for each in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            bound = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
            return f"list of {_type(schema.get('items', {}))}{bound}"
        case "object":
            inner = _values_of_map(schema)
            return f"map to {_type(inner[0])}" if inner else "object"
        case "string":
            return f"text like {code(schema['pattern'])}" if "pattern" in schema else "text"
        case "integer" | "number":
            least, most = schema.get("minimum"), schema.get("maximum")
            return "number" + (f", {least} to {most}" if least is not None and most is not None else "")
    return {"boolean": "`true` or `false`"}.get(str(schema.get("type")), "any")
