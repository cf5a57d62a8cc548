"""Check `OAuthApp.spec.connectParams`: their forms, and where they stand in the addresses of the app."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.config.written.resource_specs import ConnectParamSpec
from oauthbroker.core.patterns import is_pattern
from oauthbroker.core.shapes import has_shape
from oauthbroker.core.spelling import nearest
from oauthbroker.model.connect_params import LABEL, WORD, ConnectParam, filled, is_safe, params_in
from oauthbroker.model.provider_api import is_host_name

ProblemText = tuple[str, str]
SAMPLE: Final = "a"  # a host label, a segment of a path and the value of a parameter
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,31}")
_SAID: Final = "{connectParams.%s}"


def connect_params_of(app: Merged) -> tuple[ConnectParam, ...]:
    """Return the parameters of an app, with what its preset knows of them."""
    return tuple(_param(app, name, written) for name, written in (app.spec.connect_params or {}).items())


def _param(app: Merged, name: str, written: ConnectParamSpec) -> ConnectParam:
    known = app.preset.params.get(name) if app.preset is not None else None
    hosts = _hosts_with(app, name)
    suffix = next((suffix for host in hosts if (suffix := _suffix(host, name))), "")
    usual = known.pattern if known is not None and f"{{{name}}}" not in hosts else None
    derived = {
        each: tuple(found.values.items())
        for each, found in (app.preset.derived if app.preset else {}).items()
        if found.of == name
    }
    return ConnectParam(
        name=name,
        title=written.title or (known.description if known is not None else ""),
        pattern=written.pattern or usual or WORD,
        one_of=tuple(written.one_of or ()),
        within=suffix or written.within or "",
        adds_suffix=not suffix and written.within is not None,
        derived=tuple(derived.items()),
    )


def check_connect_params(app: Merged, others: Sequence[str] = ()) -> None:
    """Check the parameters of a connection, and what stands in their place. `others` are texts beside the addresses of
    the app in which they may stand."""
    _check_templates(app)
    for name, written in (app.spec.connect_params or {}).items():
        at: Keys = ("connectParams", name)
        if app.written.whole(*at) and (problem := _problem(app, name, written, others)):
            app.written.refuse(at, *problem, key=True)
    if not app.spec.connect_params:
        return
    if app.spec.provider == MCP:
        app.written.refuse(("connectParams",), "an MCP server has one address", "remove it", key=True)
    if app.redirect.link == "direct":
        what = "a direct link skips the page where a person says connectParams"
        app.written.refuse(("redirect", "link"), what, "write link: connect")
    _check_callback(app)
    _check_identity(app)


def _problem(app: Merged, name: str, written: ConnectParamSpec, others: Sequence[str]) -> ProblemText | None:
    """Return (problem, remedy) for one parameter, else None."""
    if not _NAME.fullmatch(name):
        return "not the name of a parameter", "write a word of letters and digits"
    if name in (app.spec.params or {}):
        return "also in params, where it has one value for all", "keep one of the two"
    if written.pattern is not None and (problem := _pattern_problem(written.pattern)):
        return problem
    if written.title is not None and not (has_shape(written.title) and 0 < len(written.title.strip()) <= 100):
        return "its title is none", "write one line of at most 100 characters"
    if written.one_of is not None and (len({*written.one_of}) < max(1, len(written.one_of))):
        return "oneOf is empty, or has a value twice", "write each value once"
    if not all(is_safe(value) for value in written.one_of or ()):
        return "oneOf has a value that could lead elsewhere", "write words of letters, digits, - _ . ~"
    if not any(name in params_in(text) for text in (*_texts(app), *others)):
        return "it stands in no address of the app", f"write {{{name}}} where it belongs, or remove it"
    return _host_problem(app, name, written)


def _host_problem(app: Merged, name: str, written: ConnectParamSpec) -> ProblemText | None:
    """Return (problem, remedy) for a parameter in a host. A whole host comes from the operator's own list, or is one
    label within a domain."""
    hosts, one_of, within = _hosts_with(app, name), written.one_of or [], written.within
    if within is not None and (not hosts or one_of or not _is_domain(within)):
        return "within is no domain that it can lie in", "write a dot and at least two labels, such as .my.example.com"
    for host in hosts:
        suffix = _suffix(host, name)
        if within is not None and suffix not in {"", within}:
            return f"within differs from what follows it in {host}", f"write within: {suffix}, or remove it"
        if host == f"{{{name}}}" and not (one_of or within):
            return "a whole host, which a stranger could choose", "write within: .example.com, or the hosts as oneOf"
        if host == f"{{{name}}}" and not all(is_host_name(value) for value in one_of):
            return "oneOf has a value that is no host", "write names in small letters, without https:// or a port"
        if host != f"{{{name}}}" and not suffix and not one_of:
            return f"no domain of one owner bounds it in {host}", "write its values as oneOf"
    return None


def _check_callback(app: Merged) -> None:
    """Check the callback path. A hostile host must not get a code that an honest one issued: `iss` tells them apart, a
    common domain makes them one owner, and else each has a path of its own."""
    path = app.redirect.callback_path
    for param in connect_params_of(app):
        needed = has_path_of_its_own(app, param)
        if needed and f"/{{{param.name}}}" not in path:
            what = f"the hosts of {param.name} belong to several owners, so that one path for all would mix them up"
            hint = f"end it with /{{{param.name}}}, or say quirks.issuerPromised if every answer names its issuer"
            app.written.refuse(("redirect", "callbackPath"), what, hint)


def has_path_of_its_own(app: Merged, param: ConnectParam) -> bool:
    """Tell whether each value of a parameter needs a callback path of its own."""
    apart = [host for host in _hosts_with(app, param.name) if not _suffix(host, param.name)]
    return bool(param.one_of) and bool(apart) and not app.habits.issuer_promised


def _check_identity(app: Merged) -> None:
    """Check that an account of one owner's host cannot pass for the same number at another's."""
    if app.binding != "providerIdentity":
        return
    for param in connect_params_of(app):
        rule = app.identities[app.mode].rule
        if rule is None or not has_path_of_its_own(app, param) or _SAID % param.name in rule.template:
            continue
        what = f"accounts of two hosts of {param.name} could have the same name"
        hint = f"write {_SAID % param.name} into the template, or another owner.binding"
        app.written.refuse(("owner", "identity", app.mode, "template"), what, hint)


def _check_templates(app: Merged) -> None:
    """Refuse a template with a parameter that the app lacks: it would be read from the provider's answer."""
    known = {_SAID % name for name in app.spec.connect_params or {}}
    for mode, identity in app.identities.items():
        for name in params_in(identity.template or ""):
            said = f"{{{name}}}"
            if said.startswith("{connectParams.") and said not in known:
                at = ("owner", "identity", mode, "template")
                app.written.refuse(at, f"{said} is no parameter of this app", "write one of connectParams")


def samples_of(app: Merged) -> dict[str, str]:
    """Return a text for each placeholder of a parameter, to check addresses with."""
    found: dict[str, str] = {}
    for param in connect_params_of(app):
        value = param.one_of[0] if param.one_of else SAMPLE
        found |= {name: SAMPLE for name, _ in param.derived} | param.texts(value)
    return found


def sampled(app: Merged, text: str) -> str:
    return filled(text, samples_of(app)) if app.spec.connect_params else text


def unknown_param(app: Merged, url: str) -> ProblemText | None:
    """Return (problem, remedy) for a placeholder that is left in an address with samples, else None."""
    left = [name for name in params_in(url) if name != "client_id"]
    if not left:
        return None
    meant = nearest(left[0], app.spec.connect_params or ())
    hint = f"write {{{meant}}}" if meant else "write it under connectParams, if each connection has its own"
    return "a parameter in braces that this app does not have", hint


def _texts(app: Merged) -> Iterator[str]:
    """Yield the texts in which a parameter may stand, with those that follow from it."""
    derived = app.preset.derived if app.preset else {}
    urls = [getattr(app.endpoints, slot) for slot in ENDPOINT_NAMES]
    said = [host.name or "" for host in (app.spec.api.hosts or ())] if app.spec.api else []
    for text in (*urls, *app.place.named_hosts, *said, *(app.spec.resource or ())):
        yield filled(text, {name: f"{{{found.of}}}" for name, found in derived.items()})


def _hosts_with(app: Merged, name: str) -> list[str]:
    """Return the hosts of the app in which a parameter stands."""
    hosts = (urlsplit(text).netloc if "://" in text else text for text in _texts(app))
    return list(dict.fromkeys(host for host in hosts if f"{{{name}}}" in host and "/" not in host))


def _suffix(host: str, name: str) -> str:
    """Return the domain that follows a parameter, the first label of a host. Empty for another place, and where what
    follows is no domain of one owner."""
    rest = host.removeprefix(f"{{{name}}}")
    return rest if _is_domain(rest) else ""


def _is_domain(suffix: str) -> bool:
    return suffix.startswith(".") and "." in suffix[1:] and is_host_name(suffix[1:])


def _pattern_problem(pattern: str) -> ProblemText | None:
    if is_pattern(pattern):
        return None
    return "its pattern is none", f"write a regular expression for the whole value, such as {LABEL}"
