"""One mistake is one problem, at its place, with a suggestion: a misspelt word is read as the word that it resembles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.plugins_installed import SAMPLE, on_path
from tests.unit.config.bundles import APP, BROKER, CONNECTOR, GLOBAL, HEAD, TOOL, edited, problems_in, write

LOGIN = """\
  store: {url: {valueFrom: {env: DATABASE}}, consistency: fast}
  limits: {sessionSeconds: 900}
  advanced: {queueAttempts: 30}
  locale: en
  plugins: [sample]
  login:
    client: {clientId: an-id, clientSecret: {valueFrom: {env: LOGIN_SECRET}}}
    endpoints: {issuer: "https://login.example"}
    subject: "corp:user:{sub}"
  admin: {operators: {subjects: ["corp:user:a"]}}
"""
FORWARDER = (
    HEAD
    + """kind: Forwarder
metadata: {name: out}
spec:
  agents: [planner]
  webhook: {url: "https://hook.example/x", secrets: [{valueFrom: {env: HOOK}}]}
"""
)
DEVICE = (
    HEAD
    + """kind: OAuthApp
metadata: {name: tv}
spec:
  provider: github
  flow: deviceCode
  subjectMode: user
  client: {clientId: an-id, authMethod: none}
  scopes: [repo]
"""
)
SERVER = (
    HEAD
    + """kind: OAuthApp
metadata: {name: tools}
spec:
  provider: mcp
  flow: authorizationCode
  subjectMode: user
  mcp: {url: "https://mcp.example/x"}
  scopes: [a]
  owner: {binding: channelCode}
"""
)
TENANT = (
    HEAD
    + """kind: OAuthApp
metadata: {name: office}
spec:
  provider: microsoft
  flow: authorizationCode
  subjectMode: user
  params: {tenant: staff}
  client: {clientId: an-id, clientSecret: {valueFrom: {env: SECRET}}}
  scopes: [User.Read]
  owner: {binding: runtimeConfirm, confirmUrl: "https://runtime.example/x"}
  quirks: {scopeSeparator: ","}
"""
)
ROBOT = (
    HEAD
    + """kind: OAuthApp
metadata: {name: robot}
spec:
  provider: own
  flow: clientCredentials
  subjectMode: global
  client: {clientId: an-id, clientSecret: {valueFrom: {env: SECRET}}}
  endpoints: {tokenUrl: "https://own.example/t"}
  scopes: [a]
"""
)
CHANNEL = (
    HEAD
    + """kind: Connector
metadata: {name: channel}
spec:
  auth: {oauthAppRef: OAuthApp/shared, scopes: ["chat:write"]}
"""
)
SKILL = HEAD + "kind: Extension\nmetadata: {name: skill}\nspec:\n  auth: {oauthAppRef: OAuthApp/acme}\n"
NOTEBOOK = HEAD + "kind: Notebook\nmetadata: {name: red}\nspec: {oauthAppRef: OAuthApp/acme, mode: read, pages: 3}\n"
BUNDLE = {
    "broker": BROKER + LOGIN,
    "app": APP,
    "shared": GLOBAL,
    "tv": DEVICE,
    "mcp": SERVER,
    "office": TENANT,
    "robot": ROBOT,
    "tool": TOOL,
    "connector": CONNECTOR,
    "channel": CHANNEL,
    "skill": SKILL,
    "forwarder": FORWARDER,
    "red": NOTEBOOK,
}
# the file, the right text, the wrong one, the path of the problem, and a part of the hint
TYPOS = [
    # unknown fields
    ("app", "  scopes: [", "  scope: [", "spec.scope", "scopes"),
    ("app", "  scopes: [read, write]", "  scope: read", "spec.scope", "scopes"),
    ("app", "apiVersion:", "apiversion:", "apiversion", "apiVersion"),
    ("app", "kind: OAuthApp", "knid: OAuthApp", "knid", "kind"),
    ("app", "metadata:", "metdata:", "metdata", "metadata"),
    ("app", "{name: acme}", "{nmae: acme}", "metadata.nmae", "name"),
    ("app", "\nspec:", "\nspce:", "spce", "spec"),
    ("app", "  client:\n", "  clinet:\n", "spec.clinet", "client"),
    ("app", "    authorizationUrl:", "    authorizationURL:", "spec.endpoints.authorizationURL", "authorizationUrl"),
    ("app", "  subjectMode:", "  subject_mode:", "spec.subject_mode", "subjectMode"),
    ("shared", "authorizers:", "authorisers:", "spec.owner.authorisers", "authorizers"),
    ("tool", "  auth: {oauthAppRef", "  auht: {oauthAppRef", "spec.auht", "auth"),
    ("tool", "oauthAppRef:", "oAuthAppRef:", "spec.auth.oAuthAppRef", "oauthAppRef"),
    ("connector", "staticToken:", "statictoken:", "spec.auth.statictoken", "staticToken"),
    ("forwarder", "webhook:", "webook:", "spec.webook", "webhook"),
    ("broker", "  login:", "  logn:", "spec.logn", "login"),
    ("broker", "sessionSeconds:", "sessionSecond:", "spec.limits.sessionSecond", "sessionSeconds"),
    ("broker", "queueAttempts:", "queueAttempt:", "spec.advanced.queueAttempt", "queueAttempts"),
    ("office", "tenant:", "tenat:", "spec.params.tenat", "tenant"),
    ("red", "mode: read", "mod: read", "spec.mod", "mode"),
    # misspelt words
    ("shared", "provider: slack", "provider: slak", "spec.provider", "slack"),
    ("tv", "provider: github", "provider: GitHub", "spec.provider", "github"),
    ("office", "provider: microsoft", "provider: microsft", "spec.provider", "microsoft"),
    ("mcp", "provider: mcp", "provider: mpc", "spec.provider", "mcp"),
    ("robot", "flow: clientCredentials", "flow: client_credentials", "spec.flow", "'clientCredentials'"),
    ("tv", "authMethod: none", "authMethod: non", "spec.client.authMethod", "'none'"),
    ("mcp", "binding: channelCode", "binding: channelcode", "spec.owner.binding", "'channelCode'"),
    ("app", "from: tokenResponse", "from: tokenresponse", "spec.owner.identity.user.from", "'tokenResponse'"),
    ("broker", "consistency: fast", "consistency: fats", "spec.store.consistency", "'fast'"),
    # words like none that is known
    ("robot", "flow: clientCredentials", "flow: implicit", "spec.flow", "'clientCredentials'"),
    ("mcp", "binding: channelCode", "binding: yours", "spec.owner.binding", "'channelCode'"),
    ("shared", "subjectMode: global", "subjectMode: team", "spec.subjectMode", "'global'"),
    ("shared", "provider: slack", "provider: qqq", "spec.provider", "slack"),
    # references
    ("tool", "OAuthApp/acme", "OAuthApp/acem", "spec.auth.oauthAppRef", "OAuthApp/acme"),
    ("tool", "OAuthApp/acme", "OAuthAp/acme", "spec.auth.oauthAppRef", "OAuthApp/<name>"),
    ("tool", "OAuthApp/acme", "acme", "spec.auth.oauthAppRef", "Kind/name"),
    ("shared", "Secret/slack", "Secrets/slack", "spec.client.clientSecret.valueFrom.secretRef.ref", "Secret/<name>"),
    ("broker", "plugins: [sample]", "plugins: [smaple]", "spec.plugins[0]", "sample"),
    # wrong types
    ("app", "scopes: [read, write]", "scopes: read", "spec.scopes", "write a list"),
    ("app", "subjectMode: user", "subjectMode: [user]", "spec.subjectMode", "'user'"),
    ("mcp", "provider: mcp", "provider: [mcp]", "spec.provider", "write text"),
    ("broker", "sessionSeconds: 900", 'sessionSeconds: "900"', "spec.limits.sessionSeconds", "without quotes"),
    ("broker", 'subjects: ["corp:user:a"]', "subjects: none", "spec.admin.operators.subjects", "write a list"),
    # kinds and versions
    ("app", "kind: OAuthApp", "kind: OAuthAp", "kind", "OAuthApp"),
    ("broker", "kind: Broker", "kind: broker", "kind", "Broker"),
    ("forwarder", "kind: Forwarder", "kind: Fowarder", "kind", "Forwarder"),
    ("red", "kind: Notebook", "kind: Notebok", "kind", "Notebook"),
    ("app", "agents.example.io/v1alpha1", "agents.example.io/v1", "apiVersion", "'agents.example.io/v1alpha1'"),
    ("shared", "agents.example.io/v1alpha1", "agents.exmaple.io/v1alpha1", "apiVersion", "'agents.example.io/v1alpha1'"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def sample():
    with on_path(SAMPLE):
        yield


def found(tmp_path: Path, file: str, text: str) -> list[tuple[str, str]]:
    """The path and hint of each problem of the bundle with another text of one file."""
    beside = ("app", "shared", "tool", "channel", *(["broker"] if file == "red" else []))
    texts = {name: BUNDLE[name] for name in beside} | {file: text}
    return [(it.path, it.hint) for it in problems_in(write(tmp_path, **texts))]


@pytest.mark.case("95")
@pytest.mark.parametrize("file, right, wrong, path, meant", TYPOS, ids=[f"{row[0]}: {row[2].strip()}" for row in TYPOS])
def test_a_mistake_is_one_problem_with_a_suggestion(
    tmp_path: Path, file: str, right: str, wrong: str, path: str, meant: str
) -> None:
    ((at, hint),) = found(tmp_path, file, edited(BUNDLE[file], (right, wrong)))
    assert path == at
    assert meant in hint


@pytest.mark.parametrize("file", BUNDLE)
def test_each_field_of_each_kind_misspelt_is_one_problem_that_names_it(tmp_path: Path, file: str) -> None:
    """But other fields of the runtime, and an Extension whose `spec` cannot be found, which may have no `auth`."""
    text, ignored = BUNDLE[file], {"entry", "type", *(["spec"] if file == "skill" else [])}
    for number, match in enumerate(re.finditer(r"[A-Za-z]{3,}(?=:[ \n])", text)):
        name, (start, end) = match[0], match.span()
        if name in ignored or (file == "tool" and start > text.index("exports:")):
            continue
        swapped = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name + "x"
        [(path, hint)] = found(tmp_path / str(number), file, text[:start] + swapped + text[end:])
        assert (True, True) == (path.endswith(swapped), name in hint), (swapped, path, hint)


def test_two_mistakes_are_two_problems_also_one_within_the_other(tmp_path: Path) -> None:
    wrong = edited(APP, ("  client:\n", "  clinet:\n"), ("clientId:", "clientID:"), ("  flow:", "  flwo:"))
    assert {"spec.clinet", "spec.client.clientID", "spec.flwo"} == {path for path, _ in found(tmp_path, "app", wrong)}


def test_a_misspelt_field_beside_the_right_one_replaces_nothing(tmp_path: Path) -> None:
    wrong = edited(APP, ("  scopes: [read, write]", "  scope: [read]\n  scopes: [read, write]"))
    assert ["spec.scope"] == [path for path, _ in found(tmp_path, "app", wrong)]
