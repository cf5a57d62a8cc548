"""Choose between a preset's endpoints and an app's own. Secrets go to the ones or to the others, never to both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.apps import Endpoints
from oauthbroker.model.connect_params import filled, params_in
from oauthbroker.model.provider_api import AccountHost
from oauthbroker.providers.connection_facts_form import AccountHostForm

if TYPE_CHECKING:
    from oauthbroker.providers.preset import Preset

_PAGE: Final = "authorization_url"  # the one endpoint that receives no secret: browsers open it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPlace:
    """Where an app's provider answers. `api_hosts` and `api_base_path` are the preset's.

    `is_elsewhere`: the app's endpoints are another provider's, so the preset's are not used. `dropped` are those that
    the app does not name, as they are written in an app.
    """

    endpoints: Endpoints
    api_hosts: tuple[str | AccountHost, ...] = ()
    api_base_path: str = ""
    is_elsewhere: bool = False
    dropped: tuple[str, ...] = ()

    @property
    def named_hosts(self) -> list[str]:
        return [host for host in self.api_hosts if isinstance(host, str)]


def place_of(spec: OAuthAppSpec, preset: Preset | None) -> ProviderPlace:
    """Return the preset's endpoints with the app's own, or the app's alone if one of them belongs to another provider.

    That is one that receives a secret and differs from the preset's, and any at a host that the preset does not know.
    The page for browsers is then the preset's only at a host that the app names.
    """
    said = {slot: url for slot, url in (spec.endpoints or ()) if url is not None}
    values = values_of(spec, preset)
    known = {slot: filled(url, values) for slot, url in (preset.endpoints if preset else ()) if url}
    hosts = tuple(_api_host(host, values) for host in (preset.api_hosts if preset else ()))
    if not _is_elsewhere(said, known, hosts):
        path = filled(preset.api_base_path, values) if preset else ""
        return ProviderPlace(endpoints=Endpoints(**{**known, **said}), api_hosts=hosts, api_base_path=path)
    if _PAGE in known and _host(known[_PAGE]) in map(_host, said.values()):
        said = {_PAGE: known[_PAGE], **said}
    dropped = [f"endpoints.{name}" for slot, name in ENDPOINT_NAMES.items() if slot in known and slot not in said]
    if hosts and not (spec.api and spec.api.hosts):
        dropped.append("api.hosts")
    if preset is not None and preset.issuer_template and not (spec.quirks and spec.quirks.issuer_template):
        dropped.append("quirks.issuerTemplate")
    if preset is not None and preset.connection_facts.names and not spec.facts:
        dropped.append("facts")
    return ProviderPlace(endpoints=Endpoints(**said), is_elsewhere=True, dropped=tuple(dropped))


def params_of_host(preset: Preset) -> dict[str, str]:
    """Return the parameters that stand in the host of an endpoint, each with such an endpoint's slot."""
    found: dict[str, str] = {}
    for slot, url in preset.endpoints:
        for name in params_in(urlsplit(url).netloc):  # names have upper case, hosts have none
            if name in preset.derived or name in preset.params:
                found.setdefault(preset.derived[name].of if name in preset.derived else name, slot)
    return found


def unused_parts(dropped: Iterable[str], preset: Preset) -> tuple[str, str]:
    """Return (what, what to do) for the parts of a preset that an app with endpoints of its own does not use."""
    what = f"the app has endpoints of its own, so these of the preset {preset.name} are not used: {', '.join(dropped)}"
    params = params_of_host(preset)
    instead = f"; or leave out endpoints and write {' and '.join(f'params.{name}' for name in params)}"
    return what, f"write those that your installation has{instead if params else ''}"


def _api_host(host: str | AccountHostForm, values: Mapping[str, str]) -> str | AccountHost:
    if not isinstance(host, str):
        return host.host
    name = filled(host, values)
    return name if "{" in name else name.lower()


def _is_elsewhere(said: Mapping[str, str], known: Mapping[str, str], hosts: Iterable[str | AccountHost]) -> bool:
    if not known:
        return False
    named = {_host(url) for url in known.values()} | set(hosts)
    differs = [slot for slot, url in said.items() if url != known.get(slot)]
    return any(_host(said[slot]) not in named or (slot in known and slot != _PAGE) for slot in differs)


def values_of(spec: OAuthAppSpec, preset: Preset | None) -> dict[str, str]:
    """Return the values of a preset's placeholders: the app's, else the usual ones, and what follows from them."""
    if preset is None:
        return {}
    values = {name: param.default for name, param in preset.params.items() if param.default} | (spec.params or {})
    values = {name: text for name, text in values.items() if name not in (spec.connect_params or {})}
    for name, derived in preset.derived.items():
        if derived.of in values and (text := derived.text_for(values[derived.of])) is not None:
            values[name] = filled(text, values)
    return values


def _host(url: str) -> str:
    """Return the host of a URL, with its port and in lower case. Empty for other text."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.netloc.lower().removesuffix(":443") if parts.scheme == "https" else ""
