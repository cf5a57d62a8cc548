"""Parse a page as a browser without scripts: forms, links, a meta refresh, the text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from oauthbroker.core.dataclasses import dataclass, field

_REFRESH = re.compile(
    r"""^\s*\d*(?:\.\d*)?\s*[;,]?\s*(?:url\s*=\s*)?(['"]?)(?P<url>.+?)\1\s*$""", re.IGNORECASE | re.DOTALL
)
_SILENT = frozenset({"style", "script", "title", "template"})
_Attributes = dict[str, str]


@dataclass(slots=True, kw_only=True)
class Form:
    """A form with its initial values. `buttons` are its submit buttons with their pairs, `choices` its radio buttons
    and checkboxes."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    choices: list[tuple[str, str]] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """Return the names of all fields, choices and buttons."""
        return {name for name, _ in self.fields + self.choices + self.buttons if name}


@dataclass(slots=True, kw_only=True)
class Document:
    forms: list[Form] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    refresh: str | None = None
    title: str = ""
    text: str = ""


def parse(source: str) -> Document:
    """Parse a page. Broken HTML is parsed as far as possible."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    reader.document.text = " ".join("".join(reader.words).split())
    return reader.document


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.document = Document()
        self.words: list[str] = []
        self._form: Form | None = None
        self._select: str | None = None
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        present = {name for name, _ in attrs}
        self.words.append(" ")
        if tag in _SILENT:
            self._open.append(tag)
        elif tag == "form":
            self._form = Form(action=found.get("action", ""), method=found.get("method", "get").lower())
            self.document.forms.append(self._form)
        elif tag == "a" and "href" in found:
            self.document.links.append(found["href"])
        elif tag == "meta" and found.get("http-equiv", "").lower() == "refresh":
            match = _REFRESH.match(found.get("content", ""))
            self.document.refresh = match["url"] if match else None
        elif self._form is not None and "disabled" not in present:
            self._control(self._form, tag, found, present)

    def _control(self, form: Form, tag: str, found: _Attributes, present: set[str]) -> None:
        name, kind = found.get("name", ""), found.get("type", "").lower()
        if tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in present:
            form.fields.append((self._select, found.get("value", "")))
        elif (tag == "button" and kind in {"", "submit"}) or (tag == "input" and kind in {"submit", "image"}):
            form.buttons.append((name, found.get("value", "")))
        elif tag == "input" and kind in {"checkbox", "radio"}:
            form.choices.append((name, found.get("value", "on")))
            if name and "checked" in present:
                form.fields.append((name, found.get("value", "on")))
        elif tag in {"input", "textarea"} and name and kind not in {"button", "reset"}:
            form.fields.append((name, found.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        self.words.append(" ")
        if tag in _SILENT and self._open and self._open[-1] == tag:
            self._open.pop()
        elif tag == "form":
            self._form = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.words.append(data)
        elif self._open[-1] == "title":
            self.document.title += data
