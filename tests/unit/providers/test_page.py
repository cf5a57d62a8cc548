"""docs/providers.md and providers-in-demand.md, written from the presets: `make providers` writes them, and the test refuses
a page that differs. The page of each preset is made for the site alone (tools/site/reference/provider_pages.py)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.model.connect_params import filled
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset
from oauthbroker.providers.words import Fact, account, facts, flows
from tests.kit.popular_entries import popular_rows
from tests.kit.popular_presets import POPULAR

POPULAR_FACTS = {
    "endpoints.authorizationUrl": "authorization endpoint",
    "endpoints.tokenUrl": "token endpoint",
    "identity.user": "a person is",
    "identity.global": "a team is",
    "refreshTokens": "refresh tokens",
    "revoke": "revocation",
    "apiHosts": "hosts of the API",
}
FILES = "../oauthbroker/providers"  # on the site, such a link leads to the page of the preset
PAGE = Path(__file__).parents[3] / "docs" / "providers.md"
IN_DEMAND = PAGE.with_name("providers-in-demand.md")
INTRO = """\
# Providers

Written by `make providers` from the files in `oauthbroker/providers/`; a test refuses a page that differs.

A preset supplies the fields that an OAuthApp leaves out: a provider's endpoints, its deviations from the standards, and the
spelling of its accounts. `oauthbroker providers show NAME` prints one, with what to register at the provider and an OAuthApp to start from. An app's own fields
override the preset; [its own endpoints replace the preset's as a whole](quirks.md#providers). Presets are data, not code.

**Each preset's own page** is behind its name in the table below. In the repository that is its file, with the sources of its
facts under `evidence`. [Those in demand](providers-in-demand.md) are shown with their facts, side by side.

**Sources.** Every fact names its source. *documentation* is a page that we read; the date is
the day of reading, in a stored copy that may be older, unless it says otherwise. *package* is a maintained library of that
very version that holds the same fact.
**Unverified** is everything else: we have no written source, and did not test it against the provider. Try it
before you rely on it. `oauthbroker check` says how many unverified facts an app relies on, and `--json` which.

`offline_access` asks for a refresh token and is no right: it belongs under `quirks.alwaysScopes`, not among an app's
`scopes`. The presets that are known to need it request it themselves ("always asked for").

PKCE is sent with S256; only [an app](quirks.md#a-provider-that-refuses-pkce) can leave it out. "A person is" and "a team is" are the templates of `owner.identity`. Without one,
the app must write its own, because the provider's answers do not identify the account by themselves.

"""
POPULAR_INTRO = """\
# Providers in demand

Written by `make providers` from [the presets](providers.md); a test refuses a page that differs.

## The 25 asked for most

The facts that an app of these relies on. (?) marks an unverified fact; the preset's own page has the sources.

"""
ENTRIES_INTRO = """\
## The 36 entries that the largest catalogue marks popular

How each is reached. A test loads each app, and checks that its requests may go to the address and that the test which plays it
is there. Beside these fields an OAuthApp has its `client`, and an app of a team `owner.authorizers`. Where nothing names the
account (Sage Intacct, Linear's MCP server, most keys), `owner.binding` says how the user is confirmed.

"""
OUTRO = """\
## A provider that is not here

[Step by step](how-to/own-provider.md): `oauthbroker providers new acme --out config/acme.yaml` asks for the endpoints and writes an OAuthApp, with `--issuer URL` from the
metadata of the issuer. `{shop}` in an endpoint becomes a [parameter of each connection](how-to/accounts-and-tenants.md#many-tenants-one-app).
There is no file for a preset of your own: an app can set everything that a preset can, also its
[quirks](quirks.md#quirks), its facts, and the hosts of its API. An OpenID provider needs only its issuer: `provider: oidc`.

```yaml
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: acme}
spec:
  provider: acme # a name of your own
  flow: authorizationCode
  subjectMode: user
  client: {clientId: {valueFrom: {env: ACME_CLIENT_ID}}, clientSecret: {valueFrom: {env: ACME_SECRET}}}
  endpoints:
    authorizationUrl: https://acme.example/oauth/authorize
    tokenUrl: https://acme.example/oauth/token
    userInfoUrl: https://api.acme.example/me
  scopes: [read]
  owner: {identity: {user: {from: userInfo, template: "acme:user:{data.id}"}}}
  api: {hosts: [api.acme.example]}
  options: {authorize: {access_type: offline}}
  quirks:
    userInfoKind: own # no OpenID behind it
    tokenRequestFormat: json
    errorWords: {expired_refresh_token: invalid_grant}
```

The account must be an identifier that never changes and is never given to another account: a number or an id, not an e-mail
address and not a name.

## Looked at, and left out

| provider | why |
|---|---|
| Fitbit | its Web API and its OAuth endpoints were to end in November 2026, says Google's page on the Google Health API; use `google` with that API's scopes |
| Snapchat | a well-kept client switches PKCE off for it, and nothing was found that says PKCE does no harm there. Where a preset here says `pkce: unknown` for that reason, its row says so: try it first |
| BigCommerce | its callback comes without `state`, which alone shows whose consent it is; and the exchange has to repeat `context` and `scope` of that callback |
| Etsy | every request of its API needs the client's id and secret in a header beside the token; the broker puts no secret of a client into the requests of tools |
| NetSuite | no answer names the person; an app says endpoints, and as its who-am-I endpoint a RESTlet that does |
| Trello | OAuth 1 |

## A preset more

1. `oauthbroker/providers/<name>.yaml`, in the words of the [quirks](quirks.md#quirks). Every field that is set has an
   entry under `evidence`, the longest prefix of its path counts: `documentation (address, read <date>: what it says)` if you read
   it, `package <name> <version> (file: what it holds)` if you opened that very version, `unverified (why you believe it)` for
   all the rest. A wrong fact is worse than a missing one.
2. `tests/presets/<name>.yaml`: plays. What the provider demands and answers, as close to its documentation's examples as can
   be. Each quirk has to be played; a provider that plays the play refuses a request that its original would refuse.
3. `make providers` writes these pages, and `make test-fast ARGS="-k presets"` plays the plays.
"""


def page() -> str:
    known = list(presets().values())
    return "\n".join([INTRO, *_table(_overview(known)), "", OUTRO])


def in_demand() -> str:
    parts = [POPULAR_INTRO, *_table(_popular()), "", ENTRIES_INTRO, *_table(popular_rows())]
    return "\n".join(parts) + "\n"


def _overview(known: list[Preset]) -> Iterator[tuple[str, ...]]:
    yield "provider", "account of a person", "account of a team", "flows", "unverified"
    for preset in known:
        yield (
            f"[`{preset.name}`]({FILES}/{preset.name}.yaml)",
            _doubted(*account(preset, "user")),
            _doubted(*account(preset, "global")),
            _doubted(*flows(preset)),
            str(len(preset.unverified()) or "none"),
        )


def _popular() -> Iterator[tuple[str, ...]]:
    yield "provider", "scopes, for example", *POPULAR_FACTS.values()
    for name in POPULAR:
        variants = list(presets()[name].variants().values())
        first, found = variants[0], {fact.path: fact for each in reversed(variants) for fact in facts(each)}
        cells = [_short(found[path], first.usual_values()) if path in found else "write one" for path in POPULAR_FACTS]
        yield (
            f"[`{name}`]({FILES}/{name}.yaml)",
            " ".join(map(_scope, first.sample_scopes)) or "none are asked for",
            *cells,
        )


def _scope(text: str) -> str:
    return f"`{text}`"


def _short(fact: Fact, usual: Mapping[str, str]) -> str:
    """Return a fact in a narrow cell, with the usual parameters: a template without its source, and not more than three
    hosts."""
    text = fact.text.partition(",")[0] if fact.path.startswith("identity.") else filled(fact.text, usual)
    if fact.path == "apiHosts" and len(hosts := text.split(" ")) > 4 and "as told" not in text:
        text = f"{' '.join(hosts[:3])} and {len(hosts) - 3} more"
    return (f"`{text}`" if "{" in text or text.startswith("https://") else text) + ("" if fact.is_sure else " (?)")


def _doubted(text: str, sure: bool) -> str:
    return (f"`{text}`" if "{" in text else text) + ("" if sure else " (unverified)")


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


# --- tests


def test_the_page_is_up_to_date():
    for written, place in ((page(), PAGE), (in_demand(), IN_DEMAND)):
        assert written == place.read_text("utf-8"), f"docs/{place.name} is old: run `make providers`"


@pytest.mark.parametrize("name", POPULAR)
def test_a_popular_preset_says_all_that_an_app_needs(name: str):
    """The endpoints and the API's hosts; whose account it is; what becomes of refresh tokens, and how a grant ends."""
    for variant in presets()[name].variants().values():
        said = {*variant.fact_paths(), *(path.rpartition(".")[0] for path in variant.fact_paths())}
        assert {"endpoints.authorizationUrl", "endpoints.tokenUrl", "refreshTokens", "revoke", "apiHosts"} <= said
        assert {"identity.user", "identity.global"} & said
        assert variant.sample_scopes or variant.scopeless
    assert len(set(POPULAR)) == 25


def test_what_the_page_shows_loads(tmp_path: Path):
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)):
        tmp_path.joinpath(f"{number}.yaml").write_text(block, "utf-8")
    assert {"acme"} == set(load(tmp_path).apps)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    IN_DEMAND.write_text(in_demand(), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(PAGE.parents[1])}\n")
