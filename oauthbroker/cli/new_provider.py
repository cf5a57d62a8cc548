"""`oauthbroker providers new`: write an OAuthApp for a provider without a preset."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from oauthbroker.cli.output.error_output import ask
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.new_files import new_file
from oauthbroker.cli.output.options import CONFIG, AsJson
from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.core.refused import Refused
from oauthbroker.core.sentences import two_sentences
from oauthbroker.core.spelling import nearest
from oauthbroker.personal.places import Places
from oauthbroker.providers import presets
from oauthbroker.providers.own_app import OwnProvider, own_app_yaml
from oauthbroker.providers.quirk_values import SCOPE

_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ANY_BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {weaken: [plainHttpProvider], providerNetworks: [0.0.0.0/0, "::/0"]}
---
"""
_QUESTIONS = {
    "authorizationUrl": "Where users sign in (authorization endpoint)",
    "tokenUrl": "Token endpoint",
    "userInfoUrl": "Where it says who a token belongs to, if it does",
}


def new_command(  # noqa: PLR0913, PLR0917  (options)
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of your own for the provider.")],
    issuer: Annotated[str, typer.Option(help="Its issuer, whose metadata has the endpoints.")] = "",
    endpoint: Annotated[list[str] | None, typer.Option(help="An endpoint, such as tokenUrl=https://...")] = None,
    account: Annotated[str, typer.Option(help="The member that names an account, such as data.id.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="A scope that tools need.")] = None,
    api_host: Annotated[list[str] | None, typer.Option(help="A host of its API.")] = None,
    network: Annotated[list[str] | None, typer.Option(help="A private network that may be asked.")] = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="The bundle whose outgoingProxy is used.")] = CONFIG,
    out: Annotated[Path | None, typer.Option(help="A new file, such as config/acme.yaml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write an OAuthApp for a provider without a preset. It is printed, or put into a new file.

    At a terminal it asks for the endpoints, if none is given. With an issuer its metadata is read. Nothing is stored
    or registered.
    """
    if name in presets():
        raise Refused(f"{name} has a preset: oauthbroker providers show {name}. Another provider needs another name.")
    if not re.fullmatch(_NAME, name):
        raise Refused(f"{name} cannot be its name. Use small letters, digits and hyphens.")
    endpoints = dict(_endpoint(each) for each in endpoint or ())
    if not issuer and not endpoints and sys.stdin.isatty():
        issuer = ask("Issuer, if it has one")
        endpoints = {} if issuer else {url: answer for url, words in _QUESTIONS.items() if (answer := ask(words))}
        account = account or ask("Member of its answer that names the account, such as id")
    provider = _discovered(name, issuer, endpoints, network or [], config) if issuer else _described(name, endpoints)
    provider = dataclasses.replace(
        provider,
        scopes=tuple(scope or ()),
        api_hosts=tuple(api_host or ()),
        account=account or provider.account,
        personal=out is not None and out.resolve().parent == Places.of_user().config.resolve(),
    )
    text, callback = SCHEMA_LINE + own_app_yaml(provider), f"<publicBaseUrl>/oauth/callback/{name}"
    _check(text)
    if out is not None:
        with new_file(out) as file:
            file.write(text)
    say(text.rstrip("\n") if out is None else f"Wrote {out}.", {"app": text, "callback": callback}, as_json=as_json)
    typer.echo(f"# Register {callback} there as its redirect address.", err=True)


def _endpoint(text: str) -> tuple[str, str]:
    name, mark, url = text.partition("=")
    if not mark or name not in ENDPOINT_NAMES.values():
        meant = nearest(name, ENDPOINT_NAMES.values())
        raise Refused(f"{text} is no endpoint. Write {meant or 'tokenUrl'}=https://...")
    return name, url


def _described(name: str, endpoints: dict[str, str]) -> OwnProvider:
    """Return a provider as its operator describes it. Raises Refused for half of a description."""
    if missing := {"authorizationUrl", "tokenUrl"} - endpoints.keys():
        said = " and ".join(f"--endpoint {each}=https://..." for each in sorted(missing))
        raise Refused(f"Nothing says where users sign in. Write {said}, or --issuer.")
    source = "userInfo" if "userInfoUrl" in endpoints else "tokenResponse"
    return OwnProvider(name=name, endpoints=endpoints, source=source, account="id")


def _discovered(name: str, issuer: str, endpoints: dict[str, str], networks: list[str], bundle: Path) -> OwnProvider:
    """Return what an issuer's metadata says."""
    from oauthbroker.wiring.issuer_metadata import metadata_of

    metadata = asyncio.run(metadata_of(issuer, networks, bundle))
    needed = {"authorizationUrl": metadata.endpoints.authorization_url, "tokenUrl": metadata.endpoints.token_url}
    if missing := sorted(name for name, url in needed.items() if not url and name not in endpoints):
        said = " and ".join(f"--endpoint {each}=https://..." for each in missing)
        raise Refused(f"The metadata of {issuer} names not every endpoint of a login. Write {said}.")
    is_openid = bool(metadata.endpoints.jwks_url) and "openid" in (metadata.scopes or ("openid",))
    has_user_info = metadata.endpoints.user_info_url or "userInfoUrl" in endpoints
    return OwnProvider(
        name=name,
        endpoints={"issuer": issuer, **endpoints},
        offered=tuple(each for each in metadata.scopes or () if re.fullmatch(SCOPE, each)),
        auth_methods=metadata.auth_methods or ("client_secret_basic",),
        source="idToken" if is_openid else "userInfo" if has_user_info else "tokenResponse",
    )


def _check(text: str) -> None:
    """Load the app beside a Broker that admits any network. Raises Refused for one that no bundle could have."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "app.yaml")
        file.write_text(_ANY_BROKER + text, encoding="utf-8")
        try:
            load(file)
        except ConfigInvalidError as refused:
            said = (f"{it.path}: {two_sentences(it.what, it.hint)}" for it in refused.problems)
            raise Refused("\n".join(said)) from None
