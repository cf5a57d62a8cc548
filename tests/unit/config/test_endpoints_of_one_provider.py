"""An app's endpoints are its preset's or its own: no secret goes to a host of the preset that the app did not name."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.bundle.unresolved_bundle import AppDraft
from oauthbroker.config.checks.api import api_of
from oauthbroker.config.problems.problems import Problems
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.values.preset_merge import Merged, merge
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset
from oauthbroker.providers.skeleton import app_yaml
from tests.unit.config.bundles import write

SLOTS: Final = tuple(ENDPOINT_NAMES.values())
PAGE: Final = "authorizationUrl"
OVERRIDES: Final = [*combinations(SLOTS, 1), *combinations(SLOTS, 2)]
Variant = tuple[Preset, str]
VARIANTS: Final = [
    pytest.param((preset, mode), id=f"{name} {mode}".strip())
    for name, preset in presets().items()
    for mode in preset.variants()
]
# Facts of presets with a URL that is a name: no request goes there.
NAMES: Final = {"scopeAliases", "scopePrefixes", "sampleScopes", "alwaysScopes", "unlistedScopes"}
ENTERPRISE: Final = "https://ghe.example"


@functools.cache
def _skeleton(name: str, mode: str) -> str:
    return json.dumps(yaml.safe_load(app_yaml(presets()[name], mode)))


def app_of(preset: Preset, mode: str, **endpoints: str) -> dict[str, Any]:
    """The app to start from, with endpoints of its own."""
    app: dict[str, Any] = json.loads(_skeleton(preset.name, mode))
    app["spec"]["endpoints"] = {**app["spec"].get("endpoints", {}), **endpoints}
    return app


def merged(app: Mapping[str, Any]) -> Merged:
    document = YamlDocument(file="", folder=Path(), data={}, values={}, keys={})
    spec = OAuthAppSpec.model_validate(app["spec"])
    written = Written(kind="OAuthApp", name="acme", spec=spec, document=document, problems=Problems())
    return merge(written, "https://broker.example")


def hosts(app: Merged) -> set[str]:
    """Every host that the app knows: of endpoints, of its API, and in its habits."""
    found = {urlsplit(url).netloc for url in dataclasses.asdict(app.endpoints).values()}
    found |= {each.authority for each in api_of(app).hosts}  # type: ignore[union-attr]
    rest = dataclasses.asdict(dataclasses.replace(app.habits, scope_aliases={}, always_scopes=(), unlisted_scopes=()))
    found |= set(re.findall(r"https?://([^/\"']+)", repr((rest, app.revocation, app.redirect.callback_path))))
    return found - {""}


def drafts(folder: Path, *apps: Mapping[str, Any]) -> Mapping[str, AppDraft]:
    return load(write(folder / "b", app=yaml.safe_dump_all(apps))).apps


def draft(folder: Path, app: Mapping[str, Any]) -> AppDraft:
    [found] = drafts(folder, app).values()
    return found


def refusal(folder: Path, app: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigInvalidError) as caught:
        load(write(folder / "b", app=yaml.safe_dump(app)))
    return str(caught.value)


@pytest.mark.sample(30)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_endpoint_at_another_host_leaves_none_of_the_presets(variant: Variant):
    """Each endpoint alone and each pair of them: nothing but the hosts that the app names is left."""
    preset, mode = variant
    for names in OVERRIDES:
        own = {name: f"https://{name.lower()}.own.example/x" for name in names}
        app = app_of(preset, mode, **own)
        said = {urlsplit(url).netloc for url in app["spec"]["endpoints"].values()}
        assert hosts(merged(app)) <= said, names


@pytest.mark.sample(30)
@pytest.mark.parametrize("variant", VARIANTS)
def test_another_address_at_another_host_of_the_same_provider_leaves_none_either(variant: Variant):
    """Regions, sandboxes and tenants are hosts and paths of one provider."""
    preset, mode = variant
    usual = dataclasses.asdict(merged(app_of(preset, mode)).endpoints)
    origins = {f"https://{urlsplit(url).netloc}" for url in usual.values() if url}
    for slot, name in ENDPOINT_NAMES.items():
        for origin in origins if usual[slot] and name != PAGE else ():
            app = app_of(preset, mode, **{name: f"{origin}/another/address"})
            assert hosts(merged(app)) <= {urlsplit(origin).netloc}, (name, origin)


@pytest.mark.sample(30)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_app_may_write_all_that_its_preset_says_of_endpoints(variant: Variant, tmp_path: Path):
    """In the preset's own form, with its queries and placeholders; and that replaces nothing."""
    preset, mode = variant
    usual = merged(app_of(preset, mode))
    said = {name: url for slot, name in ENDPOINT_NAMES.items() if (url := getattr(usual.endpoints, slot))}
    found = draft(tmp_path, app_of(preset, mode, **said))
    assert (usual.endpoints, ()) == (found.app.endpoints, found.dropped)
    assert api_of(usual) == found.app.api


@pytest.mark.sample(30)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_half_overridden_preset_is_refused_or_told(variant: Variant, tmp_path: Path):
    """Two addresses of an installation of one's own: the app needs more, or loads and names the dropped parts."""
    preset, mode = variant
    usual = dataclasses.asdict(merged(app_of(preset, mode)).endpoints)
    own = {PAGE: f"{ENTERPRISE}/authorize", "tokenUrl": f"{ENTERPRISE}/token"}
    try:
        found = draft(tmp_path, app_of(preset, mode, **own))
    except ConfigInvalidError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert f"of the preset {preset.name} are not used" in refused
        return
    gone = {f"endpoints.{name}" for slot, name in ENDPOINT_NAMES.items() if usual[slot] and name not in own}
    assert gone <= set(found.dropped) | {"endpoints.issuer"}, "an issuer that the skeleton writes is the app's own"
    assert (not found.notices) == (not found.dropped)
    assert all(each in str(found.notices[0]) for each in found.dropped)


def _urls(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _urls(each, path or str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _urls(each, path)
    elif isinstance(value, str) and "://" in value:
        yield path


def test_no_other_fact_of_a_preset_is_an_address():
    """A new one would have to go with the endpoints."""
    no_facts = {"evidence", "documentation", "notes", "modes", "register_at"}
    found = {
        path
        for preset in presets().values()
        for variant in (preset, *preset.variants().values())
        for path in _urls(variant.model_dump(by_alias=True, exclude_unset=True, exclude=no_facts))
    }
    assert {"endpoints", "facts", "issuerTemplate", "pkceRefusedAt", "secondExchange"} == found - NAMES


# --- kept parts and messages


GITHUB = presets()["github"]


def test_a_page_of_its_own_at_the_same_provider_replaces_nothing():
    """LinkedIn has one page for native clients and another for the others."""
    app = merged(app_of(presets()["linkedin"], "", authorizationUrl="https://www.linkedin.com/oauth/v2/authorization"))
    assert ("https://api.linkedin.com/v2/me", ()) == (app.endpoints.user_info_url, app.place.dropped)


def test_an_endpoint_more_at_the_same_provider_replaces_nothing():
    app = merged(app_of(presets()["asana"], "", userInfoUrl="https://app.asana.com/api/1.0/users/me"))
    assert ("https://app.asana.com/-/oauth_token", ()) == (app.endpoints.token_url, app.place.dropped)


def test_an_endpoint_more_at_another_host_replaces_all():
    app = merged(app_of(GITHUB, "oauthApp", pushedAuthorizationUrl=f"{ENTERPRISE}/par"))
    assert {"ghe.example"} == hosts(app)


def test_an_address_that_only_begins_like_the_presets_is_another():
    for url in ("https://api.github.com.evil.example/user", "https://api.github.com@evil.example/", "https://api.github.com:8443/user"):  # fmt: skip
        app = merged(app_of(GITHUB, "oauthApp", jwksUrl=url))
        assert app.place.is_elsewhere, url


def test_without_the_endpoint_that_tells_the_account_the_app_is_refused(tmp_path: Path):
    own = {PAGE: f"{ENTERPRISE}/authorize", "tokenUrl": f"{ENTERPRISE}/token"}
    said = refusal(tmp_path, app_of(GITHUB, "oauthApp", **own))
    assert "spec.owner.identity.user.from: A userinfo endpoint is not to be had here" in said
    assert "endpoints.userInfoUrl" in said


def test_dropped_parts_are_named_with_a_remedy(tmp_path: Path):
    own = {PAGE: f"{ENTERPRISE}/authorize", "tokenUrl": f"{ENTERPRISE}/token", "userInfoUrl": f"{ENTERPRISE}/user"}
    found = draft(tmp_path, app_of(GITHUB, "oauthApp", **own))
    assert set(found.dropped) == {
        "endpoints.issuer",
        "endpoints.revokeUrl",
        "endpoints.deviceAuthorizationUrl",
        "api.hosts",
    }
    assert "Write those that your installation has; or leave out endpoints and write params.host" in str(
        found.notices[0]
    )
    assert found.app.api.hosts == ()


def test_a_tool_without_a_token_needs_the_hosts_of_the_installation(tmp_path: Path):
    own = {PAGE: f"{ENTERPRISE}/authorize", "tokenUrl": f"{ENTERPRISE}/token", "userInfoUrl": f"{ENTERPRISE}/user"}
    tool = {"apiVersion": "agents.example.io/v1alpha1", "kind": "Tool", "metadata": {"name": "t"}}
    tool["spec"] = {"auth": {"oauthAppRef": "OAuthApp/my-github-oauthApp", "delivery": "injected"}}
    drafts(tmp_path, app_of(GITHUB, "oauthApp"), tool)
    with pytest.raises(ConfigInvalidError, match=r"Injection for an OAuthApp without api\.hosts"):
        drafts(tmp_path, app_of(GITHUB, "oauthApp", **own), tool)


def test_an_issuer_of_ones_own_is_asked_for_all_the_rest():
    """Microsoft's template of issuers is true of Microsoft's key set alone."""
    app = merged(app_of(presets()["microsoft"], "", issuer="https://login.own.example"))
    assert ({"login.own.example"}, "") == (hosts(app), app.habits.issuer_template)


# --- installations


@pytest.mark.parametrize(
    "host, api, path",
    [
        ("github.com", "api.github.com", ""),
        ("octocorp.ghe.com", "api.octocorp.ghe.com", ""),
        ("ghe.example", "ghe.example", "/api/v3"),
        ("a.octocorp.ghe.com", "a.octocorp.ghe.com", "/api/v3"),
        ("github.com.evil.example", "github.com.evil.example", "/api/v3"),
    ],
)
def test_one_parameter_makes_all_endpoints_those_of_an_enterprise(host: str, api: str, path: str, tmp_path: Path):
    app = app_of(GITHUB, "githubApp")
    app["spec"]["params"] = {"host": host}
    del app["spec"]["endpoints"]
    found = draft(tmp_path, app)
    ends = found.app.endpoints
    assert ((), ends.authorization_url) == (found.dropped, f"https://{host}/login/oauth/authorize")
    assert (f"https://{api}{path}/user", f"https://{host}/login/oauth/access_token") == (ends.user_info_url, ends.token_url)  # fmt: skip
    assert f"https://{api}{path}/applications/{{client_id}}/token" == ends.revoke_url
    assert [api] == [each.authority for each in found.app.api.hosts]  # type: ignore[union-attr]
    assert {host, api} == hosts(merged(app))


HOSTED: Final = {
    "auth0": "domain", "github": "host", "gitlab": "host", "keycloak": "server", "okta": "domain",
    "salesforce": "host", "sentry": "host", "shopify": "shop", "zendesk": "subdomain",
}  # fmt: skip


@pytest.mark.sample(60)
@pytest.mark.case("80")
@pytest.mark.parametrize("name, param", HOSTED.items(), ids=HOSTED)
@pytest.mark.parametrize(
    "value",
    [
        "https://a.example", "a.example/x/../y", "a.example?x", "a.example#x", "u@a.example", "u:p@a.example", "a.example:0",
        "a.example:99999", "a.example:x", "a..example", "a.-b.example", "-a.example", "a.example.", "10.0.0.7",
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "169.254.169.254", "[::1]", "a_b.example", "a b.example", "",
        "a.example\n", "{host}", "a.example\\@b.example", "xn--.", "a%2eexample",
    ],
)  # fmt: skip
def test_the_host_of_an_installation_is_a_host_and_nothing_else(name: str, param: str, value: str, tmp_path: Path):
    preset = presets()[name]
    app = app_of(preset, next(iter(preset.variants())))
    app["spec"]["params"][param] = value
    if re.fullmatch(preset.params[param].pattern, value) and name in {"shopify", "zendesk"}:
        return  # one label of a name that the preset ends
    assert f"spec.params.{param}" in refusal(tmp_path, app)


@pytest.mark.parametrize(
    "url",
    [
        "https://{client_id}.example/token",
        "https://ghe.example:{client_id}/x",
        "https://{client_id}/x",
        "https://ghe.example/{client_secret}/token",
        "https://ghe.example/{token}",
        "https://ghe.example/x{client_id}",
        "https://ghe.example/revoke?id={client_id}",
    ],
)
def test_only_a_segment_of_a_revocation_address_is_filled_in(url: str, tmp_path: Path):
    own = {PAGE: f"{ENTERPRISE}/a", "tokenUrl": f"{ENTERPRISE}/t", "userInfoUrl": f"{ENTERPRISE}/u", "revokeUrl": url}
    assert "spec.endpoints.revokeUrl" in refusal(tmp_path, app_of(GITHUB, "oauthApp", **own))
