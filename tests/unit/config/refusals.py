"""The table of refusals: the wrong text, the place of the problem, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit.config.bundles import CANARY

Change = tuple[str, str]
SECRET = "{valueFrom: {env: ACME_SECRET}}"
IDENTITY = '{from: tokenResponse, template: "acme:user:{user.id}"}'
OWNER = "  owner:\n    identity:\n      user: " + IDENTITY + "\n"
LOCAL = ("https://broker.example", "http://127.0.0.1:8420")
LOGIN = """  login:
    client: {clientId: an-id, clientSecret: {valueFrom: {env: LOGIN_SECRET}}}
    endpoints: {issuer: "https://login.example"}
    subject: "corp:user:{sub}"
"""
CALLBACK = "/oauth/callback/acme"


@dataclass(frozen=True)
class Refusal:
    """`file` is changed by `changes`; one of them carries the mark of the place."""

    claim: str
    file: str
    changes: tuple[Change, ...]
    path: str
    what: str
    broker: tuple[Change, ...] = ()


def app(claim: str, path: str, what: str, *changes: Change, broker: tuple[Change, ...] = ()) -> Refusal:
    return Refusal(claim, "app", changes, path, what, broker)


def shared(claim: str, path: str, what: str, *changes: Change) -> Refusal:
    return Refusal(claim, "shared", changes, path, what)


def broker(claim: str, path: str, what: str, *changes: Change) -> Refusal:
    return Refusal(claim, "broker", changes, path, what)


def tool(claim: str, path: str, what: str, *changes: Change) -> Refusal:
    return Refusal(claim, "tool", changes, path, what)


def connector(claim: str, path: str, what: str, *changes: Change) -> Refusal:
    return Refusal(claim, "connector", changes, path, what)


# fmt: off
HEADERS = [
    app("unknown api version", "apiVersion", "unknown value", ("apiVersion: agents.example.io/v1alpha1", f"apiVersion: @@agents.example.io/{CANARY}")),
    app("no api version", "apiVersion", "missing", ("apiVersion: agents.example.io/v1alpha1\n", ""), ("kind: OAuthApp", "@@kind: OAuthApp")),
    app("no name", "metadata.name", "missing", ("metadata: {name: acme}", "@@metadata: {}")),
    app("a name with a slash", "metadata.name", "not a usable name", ("{name: acme}", f"{{name: @@a/{CANARY}}}")),
    app("a name that is a number", "metadata.name", "not text", ("{name: acme}", "{name: @@12}")),
    app("an unknown field of the resource", "spek", "the nearest known name is spec", ("kind: OAuthApp\n", f"kind: OAuthApp\n@@spek: {CANARY}\n")),
    app("a misspelt api version", "apiVersion", "unknown value", ("apiVersion: agents.example.io", "apiVersion: @@agents.exmaple.io")),
    app("an api version of another country", "apiVersion", "unknown value", ("apiVersion: agents.example.io", "apiVersion: @@agents.example.com")),
    app("an api version without its group", "apiVersion", "unknown value", ("apiVersion: agents.example.io/v1alpha1", "apiVersion: @@v1alpha1")),
    app("an api version without its version", "apiVersion", "unknown value", ("apiVersion: agents.example.io/v1alpha1", "apiVersion: @@agents.example.io")),
    app("no kind", "kind", "missing", ("kind: OAuthApp\n", ""), ("apiVersion", "@@apiVersion")),
    app("a kind in another case", "kind", "the nearest known one is OAuthApp", ("kind: OAuthApp", "kind: @@oauthapp")),
    app("a kind with a joint", "kind", "the nearest known one is OAuthApp", ("kind: OAuthApp", "kind: @@OAuth-App")),
    tool("a kind in the plural", "kind", "the nearest known one is Tool", ("kind: Tool", "kind: @@Tools")),
    tool("a misspelt auth", "spec.auht", "the nearest known name is auth", ("  auth: {oauthAppRef: OAuthApp/acme, scopes: [read, write]}", "  @@auht: {oauthAppRef: OAuthApp/acme}"), ("{name: hit, auth: {scopes: [read]}}", "{name: hit}")),
    tool("an auth in another case", "spec.Auth", "the nearest known name is auth", ("  auth: {oauthAppRef: OAuthApp/acme, scopes: [read, write]}", "  @@Auth: {oauthAppRef: OAuthApp/acme}"), ("{name: hit, auth: {scopes: [read]}}", "{name: hit}")),
    tool("a misspelt auth of an export", "spec.exports[0].aut", "the nearest known name is auth", ("{name: hit, auth:", "{name: hit, @@aut:")),
    tool("misspelt exports", "spec.exprots", "the nearest known name is exports", ("  exports:", "  @@exprots:")),
    connector("a misspelt auth of a connector", "spec.atuh", "the nearest known name is auth", ("  auth:", "  @@atuh:")),
    app("a misspelt kind", "kind", "the nearest known one is OAuthApp", ("kind: OAuthApp", "kind: @@OAuthAp")),
    app("a Secret in YAML", "kind", "secrets are never written in YAML", ("kind: OAuthApp", "kind: @@Secret")),
]
SHAPES = [
    app("an unknown field", "spec.scops", "the nearest known name is scopes", ("  scopes: [read", f"  @@scops: [{CANARY}]\n  scopes: [read")),
    app("an unknown field like nothing known", "spec.client.?", "known here: assertionAudience, assertionType, authMethod, clientId, clientSecret", ("{value: an-id}", f"{{value: an-id}}\n    @@{CANARY}: 1")),
    app("an octal client id", "spec.client.clientId", "YAML versions disagree", ("{value: an-id}", "@@0123")),
    app("an octal client id in a source", "spec.client.clientId.value", "YAML versions disagree", ("{value: an-id}", "{value: @@0123}")),
    app("a number as a client id", "spec.client.clientId.value", "not text", ("{value: an-id}", "{value: @@7070707}")),
    app("a date as a scope", "spec.scopes[1]", "YAML versions disagree", ("[read, write]", "[read, @@2026-01-01]")),
    app("a Norwegian scope", "spec.scopes[0]", "YAML versions disagree", ("[read, write]", "[@@no]")),
    app("a minute as a scope", "spec.scopes[0]", "YAML versions disagree", ("[read, write]", "[@@1:20]")),
    app("an exponent as a scope", "spec.scopes[0]", "YAML versions disagree", ("[read, write]", "[@@12e3]")),
    app("one scope without a list", "spec.scopes", "not a list", ("[read, write]", f"@@{CANARY}")),
    app("a list for a mapping", "spec.client", "not a mapping", ("  client:\n    clientId: {value: an-id}\n    clientSecret: " + SECRET, f"  client: @@[{CANARY}]")),
    app("an empty field", "spec.scopes", "empty", ("scopes: [read, write]", "@@scopes:")),
    app("an empty section", "spec.redirect", "empty", ("redirect: {callbackPath: /oauth/callback/acme}", "@@redirect: ~")),
    app("an unknown subject mode", "spec.subjectMode", "use 'global' or 'user'", ("subjectMode: user", f"subjectMode: @@{CANARY}")),
    app("a text of 3000 characters", "spec.provider", "too long", ("provider: acme", "provider: @@" + CANARY * 250)),
    app("201 scopes", "spec.scopes", "too many", ("[read, write]", "@@[" + ", ".join(f"s{n}" for n in range(201)) + "]")),
    broker("a port in quotes", "spec.listen.port", "not a whole number", ("port: 8420", 'port: @@"8420"')),
    broker("a port out of range", "spec.listen.port", "too large", ("port: 8420", "port: @@84200")),
    broker("a limit out of range", "spec.limits.sessionSeconds", "write at least 60", ("  listen:", "  limits: {sessionSeconds: @@5}\n  listen:")),
    broker("yes for true", "spec.events.expired", "YAML versions disagree", ("  listen:", "  events: {expired: @@yes}\n  listen:")),
    broker("a plain URL of the database", "spec.store.url.value", "a secret in plain YAML", ("  listen:", f"  store: {{url: {{value: @@{CANARY}}}}}\n  listen:")),
    broker("a plain URL past a pooler", "spec.store.directUrl.value", "a secret in plain YAML", ("  listen:", f"  store: {{directUrl: {{value: @@{CANARY}}}}}\n  listen:")),
    broker("the URL past a pooler in the store", "spec.store.directUrl.valueFrom.secretRef", "lies in the store that it opens", ("  listen:", "  store: {directUrl: {valueFrom: {secretRef: @@{ref: Secret/a, key: b}}}}\n  listen:")),
    broker("an unknown limit", "spec.limits.sessionsPerApps", "the nearest known name is sessionsPerApp", ("  listen:", "  limits: {@@sessionsPerApps: 5}\n  listen:")),
    broker("a proxy without an address", "spec.outgoingProxy.url", "missing", ("  listen:", "  @@outgoingProxy: {resolve: here}\n  listen:")),
    broker("a proxy by another scheme", "spec.outgoingProxy.url", "not the URL of an HTTP proxy", ("  listen:", "  outgoingProxy: {url: @@socks5://proxy.corp.example}\n  listen:")),
    broker("a password in a proxy's address", "spec.outgoingProxy.url", "a user name in a URL", ("  listen:", f"  outgoingProxy: {{url: @@http://corp:{CANARY}@proxy.corp.example}}\n  listen:")),
    broker("a path of a proxy", "spec.outgoingProxy.url", "a path", ("  listen:", "  outgoingProxy: {url: @@http://proxy.corp.example/way}\n  listen:")),
    broker("credentials in plain text", "spec.outgoingProxy.credentials", "a secret as plain text", ("  listen:", f"  outgoingProxy: {{url: http://proxy.corp.example, credentials: @@corp:{CANARY}}}\n  listen:")),
    broker("a plain value of credentials", "spec.outgoingProxy.credentials.value", "a secret in plain YAML", ("  listen:", f"  outgoingProxy: {{url: http://proxy.corp.example, credentials: {{value: @@{CANARY}}}}}\n  listen:")),
    broker("credentials in the store", "spec.outgoingProxy.credentials", "the store with that secret", ("  listen:", "  outgoingProxy: {url: http://proxy.corp.example, credentials: @@{valueFrom: {secretRef: {ref: Secret/a, key: b}}}}\n  listen:")),
    broker("certificates for a proxy without TLS", "spec.outgoingProxy.ca", "without TLS", ("  listen:", "  outgoingProxy: {url: http://proxy.corp.example, @@ca: corp.pem}\n  listen:")),
    broker("an exception that is no host", "spec.outgoingProxy.except[0]", "not a host", ("  listen:", "  outgoingProxy: {url: http://proxy.corp.example, except: [@@'*.corp.example']}\n  listen:")),
    broker("a mode that is none", "spec.outgoingProxy.resolve", "use 'here' or 'proxy'", ("  listen:", f"  outgoingProxy: {{url: http://proxy.corp.example, resolve: @@{CANARY}}}\n  listen:")),
    app("past a proxy that is not there", "spec.outgoingProxy", "names no outgoingProxy", ("  provider: acme", "  @@outgoingProxy: direct\n  provider: acme")),
    broker("an unknown locale", "spec.locale", "use 'en' or 'ko'", ("  listen:", f"  locale: @@{CANARY}\n  listen:")),
    broker("an unknown weakening", "spec.weaken[0]", "unknown value", ("  listen:", f"  weaken: [@@{CANARY}]\n  listen:")),
]
PROVIDERS = [
    app("no provider", "spec.provider", "missing", ("  provider: acme\n", ""), ("spec:\n", "@@spec:\n")),
    app("a provider with a space", "spec.provider", "not a usable name", ("provider: acme", f"provider: @@ac {CANARY}")),
    app("no subject mode", "spec.subjectMode", "missing", ("  subjectMode: user\n", ""), ("spec:\n", "@@spec:\n")),
    app("a title of two lines", "spec.title", "not a title", ("  provider:", f'  title: @@"{CANARY}\\n2"\n  provider:')),
    app("a parameter that nothing needs", "spec.params.?", "unknown parameter", ("  provider:", f"  params: {{@@{CANARY}: x}}\n  provider:")),
    shared("a tenant that is not a host's word", "spec.params.tenant", "not a usable parameter", ("provider: slack", f"provider: microsoft\n  params: {{tenant: @@{CANARY}/x}}"), ("slack:user:T1:U1", "microsoft:user:t:u")),
    shared("a missing tenant", "spec.params.tenant", "missing", ("  provider: slack", "  provider: microsoft"), ("slack:user:T1:U1", "microsoft:user:t:u"), ("spec:\n", "@@spec:\n")),
    shared("a misspelt parameter", "spec.params.tenat", "the nearest known one is tenant", ("provider: slack", "provider: microsoft\n  params: {tenant: t, @@tenat: x}"), ("slack:user:T1:U1", "microsoft:user:t:u")),
    app("an own provider without an authorization endpoint", "spec.endpoints.authorizationUrl", "missing", ("    authorizationUrl: https://acme.example/authorize\n", ""), ("  endpoints:", "  @@endpoints:")),
    app("a provider in another case, without endpoints", "spec.endpoints.tokenUrl", "if you meant the provider slack, write that", ("provider: acme", "provider: Slack"), ("    tokenUrl: https://acme.example/token\n", ""), ("  endpoints:", "  @@endpoints:")),
    app("an address with a misspelt parameter", "spec.endpoints.tokenUrl", "write {shop}", ("https://acme.example/authorize", "https://{shop}.acme.example/authorize"), ("https://acme.example/token", "@@https://{shp}.acme.example/token"), ("  provider:", "  connectParams: {shop: {}}\n  provider:")),
    app("an own provider without a token endpoint", "spec.endpoints.tokenUrl", "missing", ("    tokenUrl: https://acme.example/token\n", ""), ("  endpoints:", "  @@endpoints:")),
]
FLOWS = [app("no flow", "spec.flow", "missing", ("  flow: authorizationCode\n", ""), ("spec:\n", "@@spec:\n")), app("an implicit flow", "spec.flow", "unknown value", ("authorizationCode", "@@implicit"))]
CLIENTS = [
    app("no client id", "spec.client.clientId", "missing", ("    clientId: {value: an-id}\n", ""), ("  client:\n", "  @@client:\n")),
    app("no client secret", "spec.client.clientSecret", "missing", ("    clientSecret: " + SECRET + "\n", ""), ("  client:\n", "  @@client:\n")),
    app("a secret of a public client", "spec.client.clientSecret", "beside authMethod: none", ("    clientSecret: ", "    authMethod: none\n    @@clientSecret: ")),
    app("a kind of assertion where none is made", "spec.client.assertionType", "no assertion is made", ("clientSecret: ", "@@assertionType: JWT\n    clientSecret: ")),
    app("an assertion's audience where none is made", "spec.client.assertionAudience", "no assertion is made", ("clientSecret: ", "@@assertionAudience: issuer\n    clientSecret: ")),
    app("an assertion's audience that does not exist", "spec.client.assertionAudience", "unknown value", ("clientSecret: ", f"assertionAudience: @@{CANARY}\n    clientSecret: ")),
    app("a kind of assertion that does not exist", "spec.client.assertionType", "unknown value", ("clientSecret: ", f"assertionType: @@{CANARY}\n    clientSecret: ")),
    app("a secret and a list of them", "spec.client.clientSecrets", "both clientSecret and clientSecrets", (SECRET, SECRET + "\n    @@clientSecrets: [" + SECRET + "]")),
    app("an empty list of secrets", "spec.client.clientSecrets", "an empty list", ("clientSecret: " + SECRET, "clientSecrets: @@[]")),
    app("six secrets", "spec.client.clientSecrets", "too many items", ("clientSecret: " + SECRET, "clientSecrets: @@[" + ", ".join([SECRET] * 6) + "]")),
    app("a bare secret in a list", "spec.client.clientSecrets[1]", "a secret as plain text", ("clientSecret: " + SECRET, f"clientSecrets: [{SECRET}, @@{CANARY}]")),
    app("a plain secret in a list", "spec.client.clientSecrets[1].value", "a secret in plain YAML", ("clientSecret: " + SECRET, f"clientSecrets: [{SECRET}, {{value: @@{CANARY}}}]")),
    app("a list of secrets of a public client", "spec.client.clientSecrets", "beside authMethod: none", ("clientSecret: " + SECRET, "authMethod: none\n    @@clientSecrets: [" + SECRET + "]")),
    app("an unknown way to authenticate", "spec.client.authMethod", "unknown value", ("    clientSecret: ", f"    authMethod: @@{CANARY}\n    clientSecret: ")),
    app("an assertion without an issuer", "spec.endpoints.issuer", "names it as its audience", ("    clientSecret: ", "    authMethod: private_key_jwt\n    clientSecret: "), ("  endpoints:", "  @@endpoints:")),
    app("a bare secret", "spec.client.clientSecret", "a secret as plain text", (SECRET, f"@@{CANARY}")),
    app("a plain secret", "spec.client.clientSecret.value", "a secret in plain YAML", (SECRET, f"{{value: @@{CANARY}}}")),
    app("two sources", "spec.client.clientSecret", "exactly one of value and valueFrom", (SECRET, f"@@{{value: {CANARY}, valueFrom: {{env: ACME_SECRET}}}}")),
    app("no source", "spec.client.clientSecret", "exactly one of value and valueFrom", (SECRET, "@@{}")),
    app("two origins", "spec.client.clientSecret.valueFrom", "exactly one of env and secretRef", (SECRET, f"{{valueFrom: @@{{env: {CANARY}, secretRef: {{ref: Secret/a, key: b}}}}}}")),
    app("no origin", "spec.client.clientSecret.valueFrom", "exactly one of env and secretRef", (SECRET, "{valueFrom: @@{}}")),
    app("a file as an origin", "spec.client.clientSecret.valueFrom.?", "known here: env, secretRef", (SECRET, f"{{valueFrom: {{env: A, @@file: /{CANARY}}}}}")),
    app("a variable's value for its name", "spec.client.clientSecret.valueFrom.env", "not the name of", (SECRET, f"{{valueFrom: {{env: @@{CANARY}-secret}}}}")),
    app("a secret of another kind", "spec.client.clientSecret.valueFrom.secretRef.ref", "not a reference to a secret", (SECRET, f"{{valueFrom: {{secretRef: {{ref: @@Sekret/{CANARY}, key: k}}}}}}")),
    app("a secret without a slash", "spec.client.clientSecret.valueFrom.secretRef.ref", "not a reference", (SECRET, f"{{valueFrom: {{secretRef: {{ref: @@{CANARY}, key: k}}}}}}")),
    app("a secret without a key", "spec.client.clientSecret.valueFrom.secretRef.key", "not the key", (SECRET, "{valueFrom: {@@secretRef: {ref: Secret/a}}}")),
    app("a secret with a strange key", "spec.client.clientSecret.valueFrom.secretRef.key", "not the key", (SECRET, f"{{valueFrom: {{secretRef: {{ref: Secret/a, key: @@{CANARY}/x}}}}}}")),
]
DEVICE = (("flow: authorizationCode", "flow: deviceCode"), ("  endpoints:\n", "  endpoints:\n    deviceAuthorizationUrl: https://acme.example/device\n"))
DEVICES = [
    app("a direct link to a device code", "spec.redirect.link", "a device code has no direct link", *DEVICE, ("acme}\n  owner", "acme, link: @@direct}\n  owner")),
    app("a device endpoint in plain http", "spec.endpoints.deviceAuthorizationUrl", "http instead of https", DEVICE[0], ("  endpoints:\n", f"  endpoints:\n    deviceAuthorizationUrl: @@http://{CANARY}.example/device\n")),
    app("a device code without a token endpoint", "spec.endpoints.tokenUrl", "missing", *DEVICE, ("    tokenUrl: https://acme.example/token\n", ""), ("  endpoints:", "  @@endpoints:")),
]
MACHINE = (("flow: authorizationCode", "flow: clientCredentials"), ("  redirect: {callbackPath: /oauth/callback/acme}\n", ""), (OWNER, ""))
GLOBALLY = ("subjectMode: user", "subjectMode: global")
MACHINES = [
    app("client credentials for a person", "spec.subjectMode", "speak for no person", ("subjectMode: user", "subjectMode: @@user"), *MACHINE),
    app("client credentials of a public client", "spec.client.authMethod", "a public client has no credentials", GLOBALLY, ("    clientSecret: " + SECRET, "    authMethod: @@none"), *MACHINE),
    app("client credentials with a redirect", "spec.redirect", "no browser comes back", GLOBALLY, *MACHINE[::2], ("  redirect:", "  @@redirect:")),
    app("client credentials with an owner", "spec.owner", "no user is asked", GLOBALLY, *MACHINE[:2], ("  owner:", "  @@owner:")),
    app("client credentials with a pushed request", "spec.pushedAuthorization", "no user is asked", GLOBALLY, *MACHINE, ("  scopes: [read", "  @@pushedAuthorization: auto\n  scopes: [read")),
    app("client credentials that have to be pushed", "spec.pushedAuthorization", "no user is asked", GLOBALLY, *MACHINE, ("  scopes: [read", "  @@pushedAuthorization: required\n  scopes: [read")),
    app("client credentials with parameters for a page", "spec.options.authorize", "no user is asked", GLOBALLY, *MACHINE, ("  scopes: [read", "  options: {@@authorize: {a: b}}\n  scopes: [read")),
    app("client credentials with several accounts", "spec.accounts", "no user is asked", GLOBALLY, *MACHINE, ("  scopes: [read", "  @@accounts: several\n  scopes: [read")),
    app("client credentials without a token endpoint", "spec.endpoints.tokenUrl", "missing", GLOBALLY, *MACHINE, ("    tokenUrl: https://acme.example/token\n", ""), ("  endpoints:", "  @@endpoints:")),
]
PUSHING = [
    app("an unknown way of pushing", "spec.pushedAuthorization", "use 'auto', 'required' or 'never'", ("  scopes: [read", f"  pushedAuthorization: @@{CANARY}\n  scopes: [read")),
    app("pushing to nowhere", "spec.endpoints.pushedAuthorizationUrl", "an issuer whose discovery names it", ("  endpoints:", "  pushedAuthorization: required\n  @@endpoints:")),
    app("pushing a direct link", "spec.redirect.link", "lives", ("  endpoints:", "  pushedAuthorization: required\n  endpoints:\n    pushedAuthorizationUrl: https://acme.example/par"), ("{callbackPath: /oauth/callback/acme}", "{callbackPath: /oauth/callback/acme, link: @@direct}")),
    *(
        app(f"a device code with {text}", f"spec.quirks.{at}", "flow: deviceCode has no callback", *DEVICE, ("  scopes: [read", f"  quirks: {text}\n  scopes: [read"))
        for at, text in (("codeParam", "{@@codeParam: k}"), ("issuerPromised", "{@@issuerPromised: true}"), ("paramNames.redirect_uri", "{paramNames: {@@redirect_uri: k}}"), ("paramNames.code", "{paramNames: {@@code: k}}"))
    ),
    app("pushing with a device code", "spec.pushedAuthorization", "no browser is sent anywhere", ("flow: authorizationCode", "flow: deviceCode\n  @@pushedAuthorization: auto"), ("  endpoints:", "  endpoints:\n    deviceAuthorizationUrl: https://acme.example/device")),
    app("pushing in the clear", "spec.endpoints.pushedAuthorizationUrl", "http instead of https", ("  endpoints:", f"  endpoints:\n    pushedAuthorizationUrl: @@http://{CANARY}.example/par")),
]
URLS = [
    app("plain http", "spec.endpoints.tokenUrl", "http instead of https", ("https://acme.example/token", f"@@http://{CANARY}.example/token")),
    app("plain http on loopback without the switch", "spec.endpoints.tokenUrl", "weaken: [plainHttpProvider]", ("https://acme.example/token", f"@@http://127.0.0.1/{CANARY}"), broker=(LOCAL,)),
    app("plain http away from loopback with the switch", "spec.endpoints.tokenUrl", "http instead of https", ("https://acme.example/token", f"@@http://10.0.0.1/{CANARY}"), broker=(LOCAL, ("  listen:", "  weaken: [plainHttpProvider]\n  listen:"))),
    app("a name that begins like loopback", "spec.endpoints.tokenUrl", "http instead of https", ("https://acme.example/token", f"@@http://127.0.0.1.{CANARY}.example"), broker=(LOCAL, ("  listen:", "  weaken: [plainHttpProvider]\n  listen:"))),
    app("a user in a URL", "spec.endpoints.tokenUrl", "a user name in a URL", ("https://acme.example/token", f"@@https://{CANARY}:x@acme.example/token")),
    app("a fragment", "spec.endpoints.tokenUrl", "query or fragment", ("https://acme.example/token", f'@@"https://acme.example/token#{CANARY}"')),
    app("a query at the device endpoint", "spec.endpoints.deviceAuthorizationUrl", "query or fragment", ("  endpoints:", f"  endpoints:\n    deviceAuthorizationUrl: @@https://acme.example/device?a={CANARY}")),
    app("a secret in a query at the token endpoint", "spec.endpoints.tokenUrl", "names a parameter of ours", ("https://acme.example/token", f"@@https://acme.example/token?client_secret={CANARY}")),
    app("a request object in a query", "spec.endpoints.authorizationUrl", "names a parameter of ours", ("https://acme.example/authorize", f"@@https://acme.example/authorize?request=e30.{CANARY}.")),
    app("a relative URL", "spec.endpoints.tokenUrl", "not an https URL", ("https://acme.example/token", f"@@/{CANARY}")),
    app("a scheme of its own", "spec.endpoints.tokenUrl", "not an https URL", ("https://acme.example/token", f"@@file:///{CANARY}")),
    app("a space in a URL", "spec.endpoints.tokenUrl", "not a URL", ("https://acme.example/token", f"@@https://acme.example/ {CANARY}")),
    app("a backslash in a URL", "spec.endpoints.tokenUrl", "not a URL", ("https://acme.example/token", f"@@https://acme.example\\{CANARY}")),
    app("a template in a URL", "spec.endpoints.tokenUrl", "write it under connectParams", ("https://acme.example/token", f'@@"https://{{{CANARY}}}.example/"')),
    app("no host", "spec.endpoints.tokenUrl", "without a usable host", ("https://acme.example/token", "@@https:///token")),
    app("port 0", "spec.endpoints.tokenUrl", "without a usable host", ("https://acme.example/token", "@@https://acme.example:0/token")),
    app("port 99999", "spec.endpoints.tokenUrl", "not a URL", ("https://acme.example/token", "@@https://acme.example:99999/token")),
    app("half an IPv6 address", "spec.endpoints.tokenUrl", "not a URL", ("https://acme.example/token", f'@@"https://[{CANARY}/token"')),
    app("an authorization endpoint that brings its own state", "spec.endpoints.authorizationUrl", "names a parameter of ours", ("https://acme.example/authorize", f"@@https://acme.example/authorize?State={CANARY}")),
    app("a resource that is not a URL", "spec.resource[0]", "not a URL", ("  scopes: [read", f'  resource: [@@"ur n:{CANARY}"]\n  scopes: [read')),
]
SCOPES = [
    app("no scopes", "spec.scopes", "missing", ("  scopes: [read, write]\n", ""), ("spec:\n", "@@spec:\n")),
    app("two scopes in one", "spec.scopes[1]", "not a scope", ("[read, write]", f'[read, @@"write {CANARY}"]')),
    app("an empty scope", "spec.scopes[0]", "not a scope", ("[read, write]", '[@@""]')),
    app("a quote in a scope", "spec.scopes[0]", "not a scope", ("[read, write]", f"[@@'a\"{CANARY}']")),
    app("a look-alike scope", "spec.scopes[0]", "not a scope", ("[read, write]", "[@@r\u0435ad]")),
    app("the same scope twice", "spec.scopes[2]", "the same scope twice", ("[read, write]", "[read, write, @@read]")),
    shared("a comma for a provider that separates by commas", "spec.scopes[0]", "not a scope", ('["chat:write"]', f'[@@"chat:write,{CANARY}"]')),
]
REDIRECTS = [
    app(f"a callback path {name}", "spec.redirect.callbackPath", what, (CALLBACK, path))
    for name, what, path in (
        ("without a slash", "not a callback path", f"@@{CANARY}"),
        ("of the root", "not a callback path", "@@/"),
        ("with a double slash", "not a callback path", f"@@//{CANARY}"),
        ("with a slash at its end", "not a callback path", f"@@/{CANARY}/"),
        ("with dots", "not a callback path", f"@@/a/../{CANARY}"),
        ("with a percent sign", "not a callback path", f"@@/a%2f{CANARY}"),
        ("with a query", "not a callback path", f"@@/a?{CANARY}"),
        ("with a parameter", "not a callback path", f'@@"/a/{{{CANARY}}}"'),
        ("that is a URL", "not a callback path", f"@@https://{CANARY}.example/cb"),
        ("of the connect page", "a path of the broker's own", f"@@/connect/{CANARY}"),
        ("of the API", "a path of the broker's own", f"@@/v1/{CANARY}"),
        ("of the API in capitals", "a path of the broker's own", f"@@/V1/{CANARY}"),
        ("of the health check", "a path of the broker's own", "@@/healthz"),
    )
] + [
    *(
        app(f"a registered name that is {name}", "spec.redirect.uriName", "not a registered name", ("{callbackPath", f"{{uriName: @@{text}, callbackPath"))
        for name, text in (("an address", f'"https://{CANARY}.example/back"'), ("a path", f'"/back/{CANARY}"'), ("two words", f'"a {CANARY}"'), ("empty", '""'), ("broken into lines", f'"a\\n{CANARY}"'))
    ),
    app("an option by the other name of the client's id", "spec.options.authorize.client_key", "ours to set", ("  scopes: [read", "  quirks: {paramNames: {client_id: client_key}}\n  options: {authorize: {@@client_key: x}}\n  scopes: [read")),
    app("the token's header among those of tools", "spec.api.headers[0]", "the header of the token", ("  scopes: [read", "  quirks: {tokenHeader: X-Acme-Token}\n  api: {hosts: [api.acme.example], headers: [@@x-acme-token]}\n  scopes: [read")),
    app("a query with the client's id by its other name", "spec.endpoints.tokenUrl", "a parameter of ours", ("tokenUrl: https://acme.example/token\n  scopes: [read", "tokenUrl: @@https://acme.example/token?client_key=x\n  quirks: {paramNames: {client_id: client_key}}\n  scopes: [read")),
    app("the token's header among the API's", "spec.quirks.apiHeaders.x-acme-token", "the header of the token", ("  scopes: [read", "  quirks: {tokenHeader: X-Acme-Token, apiHeaders: {@@x-acme-token: x}}\n  scopes: [read")),
    app("the token's header among userinfo's", "spec.quirks.userInfoHeaders.X-Acme-Token", "the header of the token", ("  scopes: [read", "  quirks: {tokenHeader: X-Acme-Token, userInfoHeaders: {@@X-Acme-Token: x}}\n  scopes: [read")),
    app("a revocation without an address", "spec.quirks.revoke", "no address to send it to", ("  scopes: [read", "  quirks: {@@revoke: {kind: own}}\n  scopes: [read")),
    app("a revocation with a secret that is not there", "spec.quirks.revoke", "a public client has not", ("    clientSecret: {valueFrom: {env: ACME_SECRET}}\n", "    authMethod: none\n"), ("  scopes: [read", '  quirks: {@@revoke: {kind: own, params: {s: "{client_secret}"}}}\n  scopes: [read'), ("    tokenUrl:", "    revokeUrl: https://acme.example/revoke\n    tokenUrl:")),
    app("a fact that is the code", "spec.facts.callback.spapi_oauth_code", "it holds the code", ("  scopes: [read", "  quirks: {codeParam: spapi_oauth_code}\n  facts: {callback: {@@spapi_oauth_code: {pattern: x}}}\n  scopes: [read")),
    app("a base URL with plain http", "spec.redirect.baseUrl", "http is for loopback only", ("{callbackPath", f"{{baseUrl: @@http://{CANARY}.example, callbackPath")),
    app("a base URL of another origin", "spec.redirect.baseUrl", "cookie would not come back", ("{callbackPath", f"{{baseUrl: @@https://{CANARY}.example, callbackPath")),
    app("a base URL of another port", "spec.redirect.baseUrl", "cookie would not come back", ("{callbackPath", "{baseUrl: @@https://broker.example:8443, callbackPath")),
    shared("a direct link in global mode", "spec.redirect.link", "gives up the browser check", ("  scopes:", "  redirect: {link: @@direct}\n  scopes:")),
]
QUIRKS = [
    app(f"quirks: {name}", path, what, ("  scopes: [read", f"  quirks: {text}\n  scopes: [read"))
    for name, path, what, text in (
        ("a word that is none", "spec.quirks.?", "unknown field", f"{{@@{CANARY}: x}}"),
        ("a word nearly right", "spec.quirks.scopeSeperator", "nearest known name is scopeSeparator", f"{{@@scopeSeperator: {CANARY}}}"),
        ("a separator that is a letter", "spec.quirks.scopeSeparator", "unknown value", f"{{scopeSeparator: @@{CANARY}}}"),
        ("a header with a line break", "spec.quirks.tokenHeaders.?", "not a header's value", f'{{tokenHeaders: {{X-A: @@"a\\r\\n{CANARY}: b"}}}}'),
        ("a header of ours", "spec.quirks.userInfoHeaders.?", "not a header that may be set", f"{{userInfoHeaders: {{Authorization: @@{CANARY}}}}}"),
        ("a signature without a key", "spec.quirks.idTokenAlgorithms[0]", "unknown value", "{idTokenAlgorithms: [@@HS256]}"),
        ("a member's name with a space", "spec.quirks.lifetimeField", "not a member's name", f'{{lifetimeField: @@"a {CANARY}"}}'),
        ("a revocation that is none, with more", "spec.quirks.revoke", "no revocation", "{revoke: @@{kind: none, reach: grant}}"),
        ("a revocation by RFC 7009, with more", "spec.quirks.revoke", "leaves nothing of that open", "{revoke: @@{method: GET}}"),
        ("a revocation that ends nothing", "spec.quirks.revoke", "ends nothing", "{revoke: @@{kind: own, reach: none}}"),
        ("a revocation by GET, with a body", "spec.quirks.revoke", "a GET has no body", "{revoke: @@{kind: own, method: GET}}"),
        ("a revocation's token in no body", "spec.quirks.revoke", "for a body that is not there", "{revoke: @@{kind: own, body: none, tokenField: token}}"),
        ("a grant type in capitals", "spec.quirks.refreshWith.grantType", "not a grant type", f"{{refreshWith: {{token: access, grantType: @@{CANARY}}}}}"),
        ("a token by the client's name", "spec.quirks.secondExchange.tokenParam", "not a parameter for the token", "{secondExchange: {url: https://acme.example/x, grantType: long, tokenParam: @@client_id}}"),
        ("two parameters of one name", "spec.quirks", "two parameters of one name", "@@{paramNames: {client_id: k, client_secret: k}}"),
        ("a parameter with the name of the scopes'", "spec.quirks", "two parameters of one name", "@@{scopeParam: k, paramNames: {client_id: k}}"),
        ("a success that is a fraction", "spec.quirks.okMembers.?", "not a value that can be compared", "{okMembers: {code: @@1.5}}"),
        ("a success at a path with an empty name", "spec.quirks.okMembers.?", "not a member's name", "{okMembers: {a..b: @@0}}"),
        ("a success at a path that begins with a dot", "spec.quirks.okMembers.?", "not a member's name", "{okMembers: {.b: @@0}}"),
        ("an error at a path that ends with a dot", "spec.quirks.errorMembers[0]", "not a member's name", "{errorMembers: [@@a.]}"),
        ("several values of a success", "spec.quirks.okMembers.?", "not a value that can be compared", "{okMembers: {code: @@[0, 1]}}"),
        ("a success of 65 characters", "spec.quirks.okMembers.?", "not a value that can be compared", f"{{okMembers: {{code: @@{'x' * 65}}}}}"),
        ("tokens bound to a key", "spec.quirks.tokenTypeAliases[0]", "bound to a key", "{tokenTypeAliases: [@@DPoP]}"),
        ("bound tokens in other letters", "spec.quirks.tokenTypeAliases[1]", "bound to a key", '{tokenTypeAliases: [bot, @@" mAc"]}'),
        ("no access tokens", "spec.quirks.tokenTypeAliases[0]", "no access tokens", "{tokenTypeAliases: [@@n_a]}"),
        ("the scopes in a parameter of ours", "spec.quirks.scopeParam", "ours to set", "{scopeParam: @@state}"),
        ("a client id by a name of ours", "spec.quirks.paramNames.?", "ours to set", "{paramNames: {client_id: @@state}}"),
        ("a secret by the verifier's name", "spec.quirks.paramNames.?", "ours to set", "{paramNames: {client_secret: @@code_verifier}}"),
        ("a code by the secret's name", "spec.quirks.codeParam", "ours to set", "{codeParam: @@client_secret}"),
        ("a code by the name of the state", "spec.quirks.codeParam", "ours to set", "{codeParam: @@state}"),
        ("a token in a header of ours", "spec.quirks.tokenHeader", "not a header for a token", "{tokenHeader: @@Cookie}"),
        ("a token in Authorization by name", "spec.quirks.tokenHeader", "write tokenScheme", "{tokenHeader: @@Authorization}"),
        ("a token in a header with a line break", "spec.quirks.tokenHeader", "not a header for a token", f'{{tokenHeader: @@"X-A\\r\\n{CANARY}"}}'),
        ("a scheme of two words", "spec.quirks.tokenScheme", "not a scheme", f'{{tokenScheme: @@"Bearer {CANARY}"}}'),
        ("an issuer over http", "spec.quirks.issuerTemplate", "not an issuer", f'{{issuerTemplate: @@"http://{CANARY}/{{tid}}"}}'),
        ("a body for a GET", "spec.quirks.userInfoBody", "a body for a GET", f"{{@@userInfoBody: {{query: {CANARY}}}}}"),
        ("the same header in other letters", "spec.quirks.apiHeaders", "the same header twice", "{apiHeaders: @@{X-A: '1', x-a: '2'}}"),
        ("a client secret in a header", "spec.quirks.apiHeaders.?", "not filled in", f'{{apiHeaders: {{X-Key: @@"{CANARY}{{client_secret}}"}}}}'),
        ("a token in a header of the token endpoint", "spec.quirks.tokenHeaders.?", "not filled in", '{tokenHeaders: {X-Key: @@"{token}"}}'),
        ("a name that no revocation fills in", "spec.quirks.revoke.params.?", "not filled in", '{revoke: {kind: own, params: {a: @@"{code}"}}}'),
        ("a revocation's token twice", "spec.quirks.revoke", "has the token already", "{revoke: @@{kind: own, params: {token: x}}}"),
        ("a revocation without the token", "spec.quirks.revoke", "names no token", "{revoke: @@{kind: own, method: GET, body: none}}"),
        ("a header twice in a revocation", "spec.quirks.revoke.headers", "the same header twice", "{revoke: {kind: own, headers: @@{X-A: '1', x-A: '2'}}}"),
        ("a success as a dead token", "spec.quirks.revoke.deadStatuses[0]", "too small", "{revoke: {deadStatuses: [@@200]}}"),
        ("a failure of the server as a dead token", "spec.quirks.revoke.deadStatuses[0]", "too large", "{revoke: {deadStatuses: [@@503]}}"),
        ("no word as a dead token", "spec.quirks.revoke.deadWords[0]", "not an error word", '{revoke: {deadWords: [@@""]}}'),
        ("a type of tokens that is empty", "spec.quirks.tokenTypeAliases[0]", "not a token type", '{tokenTypeAliases: [@@""]}'),
        ("a type of tokens with a line break", "spec.quirks.tokenTypeAliases[0]", "not a token type", f'{{tokenTypeAliases: [@@"a\\r\\n{CANARY}"]}}'),
        ("an empty prefix of scopes", "spec.quirks.scopePrefixes[0]", "not a scope", '{scopePrefixes: [@@""]}'),
        ("a kept secret", "spec.quirks.keeps[0]", "like a secret's", "{keeps: [@@client_secret]}"),
        ("two tokens in one member", "spec.quirks", "two members of one name", "@@{tokenNames: {access_token: refresh_token}}"),
        ("a body of 5,000 characters", "spec.quirks.userInfoBody.query", "too long", f"{{userInfoMethod: POST, userInfoBody: {{query: @@{'x' * 5000}}}}}"),
        ("an empty word", "spec.quirks.scopeParam", "empty", "{@@scopeParam: ~}"),
    )
]
OPTIONS = [
    app(f"options.{group} naming {name}", f"spec.options.{group}.{name}", "ours to set", ("  scopes: [read", f"  options: {{{group}: {{@@{name}: {CANARY}}}}}\n  scopes: [read"))
    for group in ("authorize", "token", "refresh")
    for name in ("state", "redirect_uri", "scope", "client_id", "nonce", "code_challenge", "code_challenge_method", "response_type", "grant_type", "code", "code_verifier", "client_secret", "response_mode", "request_uri", "refresh_token", "STATE")
] + [
    shared("options naming the provider's own scope parameter", "spec.options.authorize.user_scope", "ours to set", ("  scopes:", f"  options: {{slack: {{tokenMode: user}}, authorize: {{@@user_scope: {CANARY}}}}}\n  scopes:")),
    app("options of an unknown request", "spec.options.?", "known here: authorize, refresh, token", ("  scopes: [read", f"  options: {{@@{CANARY}: {{a: b}}}}\n  scopes: [read")),
    app("a parameter with a space", "spec.options.authorize.?", "not a parameter name", ("  scopes: [read", f'  options: {{authorize: {{@@"a {CANARY}": b}}}}\n  scopes: [read')),
    app("a parameter that is a list", "spec.options.authorize.?", "not text", ("  scopes: [read", f"  options: {{authorize: {{a: @@[{CANARY}]}}}}\n  scopes: [read")),
    shared("an option the provider does not have", "spec.options.slack.?", "known here: tokenMode", ("  scopes:", f"  options: {{slack: {{@@{CANARY}: bot}}}}\n  scopes:")),
    shared("a mode the provider does not have", "spec.options.slack.tokenMode", "write bot or user", ("  scopes:", f"  options: {{slack: {{tokenMode: @@{CANARY}}}}}\n  scopes:")),
]
def login(claim: str, path: str, what: str, *changes: Change) -> Refusal:
    """A login with something wrong in it."""
    written = LOGIN
    for before, after in changes:
        assert before in written, before
        written = written.replace(before, after)
    return broker(claim, f"spec.login{path}", what, ("spec:\n", "spec:\n" + written))


LOGINS = [
    login("an unknown field", ".subjekt", "the nearest known name is subject", ("    subject", f"    @@subjekt: {CANARY}\n    subject")),
    login("no issuer", ".endpoints.issuer", "missing", ('{issuer: "https://login.example"}', '{tokenUrl: "https://login.example/token"}'), ("    endpoints", "    @@endpoints")),
    login("an issuer over http", ".endpoints.issuer", "http instead of https", ('"https://login.example"', '@@"http://login.example"')),
    login("an issuer inside one's own network", ".endpoints.issuer", "inside your own network", ('"https://login.example"', '@@"https://10.0.0.7"')),
    login("an endpoint that is no URL", ".endpoints.jwksUrl", "not an https URL", ('example"}', f'example", jwksUrl: @@"{CANARY}"}}')),
    login("an endpoint that a login has no use for", ".endpoints.revokeUrl", "unknown field", ('example"}', f'example", @@revokeUrl: "https://{CANARY}.example"}}')),
    login("no client", ".client.clientSecret", "missing", (", clientSecret: {valueFrom: {env: LOGIN_SECRET}}", ""), ("    client:", "    @@client:")),
    login("a secret in YAML", ".client.clientSecret.value", "a secret in plain YAML", ("{valueFrom: {env: LOGIN_SECRET}}", f"{{value: @@{CANARY}}}")),
    login("a bare secret", ".client.clientSecret", "a secret as plain text", ("{valueFrom: {env: LOGIN_SECRET}}", f"@@{CANARY}")),
    login("no subject", ".subject", "missing", ('    subject: "corp:user:{sub}"\n', ""), ("  login:", "  @@login:")),
    login("a subject that fits every account", ".subject", "fits every account", ('"corp:user:{sub}"', "@@corp:everybody")),
    login("a subject without a prefix", ".subject", "without a prefix", ('"corp:user:{sub}"', '@@"{sub}"')),
    login("a subject that can be divided in two ways", ".subject", "without a :", ('"corp:user:{sub}"', '@@"corp:{tid}-{sub}"')),
    login("a scope that is none", ".scopes[0]", "not a scope", ("    subject", "    scopes: [@@'a b']\n    subject")),
    login("a prompt that is none", ".prompt", "unknown value", ("    subject", "    prompt: @@none\n    subject")),
    broker("operators without a login", "spec.admin.operators", "there is no login to sign in at", ("spec:\n", 'spec:\n  admin: {operators: @@{subjects: ["corp:user:7"]}}\n')),
    broker("operators without a name", "spec.admin.operators", "names no operator", ("spec:\n", "spec:\n" + LOGIN + "  admin: {operators: @@{acr: [phr]}}\n")),
    broker("an operator whom the login cannot tell", "spec.admin.operators.subjects[0]", "never made by spec.login.subject", ("spec:\n", "spec:\n" + LOGIN + f"  admin: {{operators: {{subjects: [@@'{CANARY}:7']}}}}\n")),
    *(broker(f"an operator whom the login cannot tell: {why}", "spec.admin.operators.subjects[0]", "never made by spec.login.subject", ("spec:\n", "spec:\n" + LOGIN + f"  admin: {{operators: {{subjects: [@@'{subject}']}}}}\n")) for why, subject in [("no claim", "corp:user:"), ("a colon", "corp:user:7:8")]),
    login("an age of no time", ".maxAgeSeconds", "too small", ("    subject", "    maxAgeSeconds: @@0\n    subject")),
]
OWNERS = [
    app("brokerLogin without a login", "spec.owner.binding", "needs a login in the Broker", ("  owner:\n", "  owner:\n    binding: @@brokerLogin\n")),
    shared("brokerLogin for a team", "spec.owner.binding", "a global subject is none", ("  owner: {", "  owner: {binding: @@brokerLogin, ")),
    app("a direct link with brokerLogin", "spec.redirect.link", "gives up the browser check", ("  owner:\n", "  owner:\n    binding: brokerLogin\n"), ("acme}\n  owner", "acme, link: @@direct}\n  owner"), broker=(("spec:\n", "spec:\n" + LOGIN),)),
    app("a callback on the login's path", "spec.redirect.callbackPath", "a path of the broker's own", (CALLBACK, "@@/login/callback")),
    app("runtimeConfirm without a page", "spec.owner.confirmUrl", "missing", ("  owner:\n", "  @@owner:\n    binding: runtimeConfirm\n")),
    app("a page of the runtime in plain http", "spec.owner.confirmUrl", "http away from this machine", ("  owner:\n", f"  owner:\n    binding: runtimeConfirm\n    confirmUrl: @@http://{CANARY}.example/\n")),
    app("a page of the runtime with a fragment", "spec.owner.confirmUrl", "a URL with a query or fragment", ("  owner:\n", f"  owner:\n    binding: runtimeConfirm\n    confirmUrl: @@https://acme.example/#{CANARY}\n")),
    app("a page of the runtime that is no URL", "spec.owner.confirmUrl", "not a URL", ("  owner:\n", f"  owner:\n    binding: runtimeConfirm\n    confirmUrl: @@'//{CANARY} x'\n")),
    app("a page of the runtime for another binding", "spec.owner.confirmUrl", "is for binding: runtimeConfirm", ("  owner:\n", f"  owner:\n    @@confirmUrl: https://{CANARY}.example/\n")),
    app("half an identity beside a binding", "spec.owner.identity.user.template", "nothing tells whose account", ("  owner:\n", "  owner:\n    binding: channelCode\n"), (IDENTITY, "{from: tokenResponse}"), ("      user:", "      @@user:")),
    app("a direct link with channelCode", "spec.redirect.link", "gives up the browser check", ("  owner:\n", "  owner:\n    binding: channelCode\n"), ("acme}\n  owner", "acme, link: @@direct}\n  owner")),
    app("localOperator with a public address", "spec.owner.binding", "away from loopback", ("  owner:\n", "  owner:\n    binding: @@localOperator\n")),
    app("localOperator while others can connect", "spec.owner.binding", "away from loopback", ("  owner:\n", "  owner:\n    binding: @@localOperator\n"), broker=(LOCAL, ("host: 127.0.0.1", "host: 0.0.0.0"))),
    app("user mode without an identity", "spec.owner.identity.user.from", "nothing tells whose account", (OWNER, ""), ("spec:\n", "@@spec:\n")),
    app("an identity without a template", "spec.owner.identity.user.template", "nothing tells whose account", (IDENTITY, "{from: tokenResponse}"), ("      user:", "      @@user:")),
    app("an identity without a source", "spec.owner.identity.user.from", "nothing tells whose account", ("from: tokenResponse, ", ""), ("      user:", "      @@user:")),
    app("an ID token without an issuer", "spec.owner.identity.user.from", "an ID token is not to be had", ("from: tokenResponse", "from: @@idToken")),
    app("an ID token with keys but no issuer", "spec.owner.identity.user.from", "an ID token is not to be had", ("from: tokenResponse", "from: @@idToken"), ("    tokenUrl:", "    jwksUrl: https://acme.example/keys\n    tokenUrl:")),
    app("userinfo without an endpoint", "spec.owner.identity.user.from", "a userinfo endpoint is not to be had", ("from: tokenResponse", "from: @@userInfo")),
    app("a template without a claim", "spec.owner.identity.user.template", "fits every account", ('"acme:user:{user.id}"', f'@@"acme:user:{CANARY}"')),
    app("a template with an open brace", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"acme:user:{{{CANARY}"')),
    app("a template with nested braces", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"acme:user:{{{{{CANARY}}}}}"')),
    app("a template with an empty claim", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{}}"')),
    app("a template with a path that ends in a dot", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{user.}}"')),
    app("a template with a format", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{user.id!r}}"')),
    app("a template with a space", "spec.owner.identity.user.template", "not a template", ('"acme:user:{user.id}"', f'@@"{CANARY} :{{user.id}}"')),
    app("two claims without a separator", "spec.owner.identity.user.template", "without a :", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{a}}{{b}}"')),
    app("two claims with another separator than a colon", "spec.owner.identity.user.template", "without a :", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{a}}-{{b}}"')),
    app("a third claim with another separator than a colon", "spec.owner.identity.user.template", "without a :", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{a}}:{{b}}user{{c}}"')),
    app("a claim with colons beside another", "spec.owner.identity.user.template", "{*claim}", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{*a}}:{{b}}"')),
    app("a claim with colons that is not the end", "spec.owner.identity.user.template", "{*claim}", ('"acme:user:{user.id}"', f'@@"{CANARY}:{{*a}}:b"')),
    app("a template that is one claim", "spec.owner.identity.user.template", "without a prefix", ('"acme:user:{user.id}"', '@@"{user.id}"')),
    app("a template that is a number", "spec.owner.identity.user.template", "not text", ('"acme:user:{user.id}"', "@@12")),
    app("a source of its own", "spec.owner.identity.user.from", "unknown value", ("from: tokenResponse", f"from: @@{CANARY}")),
    app("authorizers in user mode", "spec.owner.authorizers", "are for subjectMode: global", ("  owner:\n", f"  owner:\n    @@authorizers: [{CANARY}]\n")),
    shared("global mode without authorizers", "spec.owner.authorizers", "missing", ('  owner: {authorizers: ["slack:user:T1:U1"]}\n', ""), ("spec:\n", "@@spec:\n")),
    shared("an empty list of authorizers", "spec.owner.authorizers", "no account could connect", ('["slack:user:T1:U1"]', "@@[]")),
    shared("another word than `anyone`", "spec.owner.authorizers", "not a list", ('["slack:user:T1:U1"]', f"@@{CANARY}")),
    shared("`anyone` among others", "spec.owner.authorizers", "stands in a list", ('["slack:user:T1:U1"]', "@@[anyone]")),
    shared("an authorizer that cannot come back", "spec.owner.authorizers[0]", "can never produce", ('"slack:user:T1:U1"', f'@@"slack:{CANARY}"')),
    shared("an authorizer with another provider's prefix", "spec.owner.authorizers[0]", "can never produce", ('"slack:user:T1:U1"', f'@@"github:user:T1:{CANARY}"')),
    shared("the same authorizer twice", "spec.owner.authorizers[1]", "the same account twice", ('"slack:user:T1:U1"', '"slack:user:T1:U1", @@"slack:user:T1:U1"')),
    shared("a global identity the provider cannot tell", "spec.owner.identity.global.from", "GitHub's answers do not say", ("provider: slack", "provider: github"), ('["slack:user:T1:U1"]', '["github:user:1"]'), ("  owner:", "  @@owner:")),
    shared(
        "a list of authorizers without the person's identity",
        "spec.owner.identity.user.from",
        "authorizers are compared with it",
        ("provider: slack", "provider: acme\n  endpoints: {authorizationUrl: 'https://acme.example/a', tokenUrl: 'https://acme.example/t'}"),
        ("  owner: {", '  owner: {@@identity: {global: {from: tokenResponse, template: "acme:team:{t}"}}, '),
    ),
    shared("an OpenID provider without a template", "spec.owner.identity.global.template", "a prefix of your own", ("provider: slack", "provider: oidc\n  endpoints: {issuer: 'https://acme.example'}"), ('["slack:user:T1:U1"]', "anyone"), ("  owner:", "  @@owner:")),
]
BROKERS = [
    broker("a public address with plain http", "spec.publicBaseUrl", "http is for loopback only", ("https://broker.example", f"@@http://{CANARY}.example")),
    broker("a public address with a query", "spec.publicBaseUrl", "query or fragment", ("https://broker.example", f"@@https://broker.example?{CANARY}")),
    broker("a public address with a user", "spec.publicBaseUrl", "a user name in a URL", ("https://broker.example", f"@@https://{CANARY}@broker.example")),
    *(
        broker(f"a public address with {step!r} in its path", "spec.publicBaseUrl", "a step that browsers leave out", ("https://broker.example", f"@@https://broker.example/{CANARY}/{step}b"))
        for step in ("../", "./", "%2e%2e/", "/")
    ),
    broker("no public address while others can connect", "spec.publicBaseUrl", "missing", ("  publicBaseUrl: https://broker.example\n", ""), ("host: 127.0.0.1", "host: 0.0.0.0"), ("spec:\n", "@@spec:\n")),
    broker("a host that is half an IPv6 address", "spec.listen.host", "not a host or address", ("host: 127.0.0.1", 'host: @@"1::2::3"')),
    broker("a host with a path", "spec.listen.host", "not a host or address", ("host: 127.0.0.1", f"host: @@a/{CANARY}")),
    broker("a weakening away from loopback", "spec.weaken", "a check is off away from loopback", ("  listen:", "  @@weaken: [plainHttpProvider]\n  listen:")),
    broker("plain secrets away from loopback", "spec.allowPlainSecrets", "away from loopback", ("  listen:", "  @@allowPlainSecrets: dev\n  listen:")),
    broker("plain secrets in production", "spec.allowPlainSecrets", "use 'dev'", ("  listen:", "  allowPlainSecrets: @@production\n  listen:")),
    broker("an empty store path", "spec.store.root", "not a path", ("  listen:", '  store: {root: @@" "}\n  listen:')),
    broker("a path with a NUL", "spec.keys.file", "not a path", ("  listen:", f'  keys: {{file: @@"{CANARY}\\0"}}\n  listen:')),
    broker("the key in the store", "spec.keys.file", "lie in the store", ("  listen:", f"  store: {{root: ../data}}\n  keys: {{file: @@../data/sub/{CANARY}}}\n  listen:")),
    broker("the key in the bundle", "spec.keys.file", "lie in the bundle", ("  listen:", f"  keys: {{file: @@sub/{CANARY}}}\n  listen:")),
    broker("the store in the bundle", "spec.store.root", "lie in the bundle", ("  listen:", f"  store: {{root: @@sub/{CANARY}}}\n  listen:")),
]
TOOLS = [
    tool("an unknown app", "spec.auth.oauthAppRef", "the nearest known one is OAuthApp/acme", ("OAuthApp/acme", "@@OAuthApp/acmee")),
    tool("an unknown app like no other", "spec.auth.oauthAppRef", "no such OAuthApp", ("OAuthApp/acme", f"@@OAuthApp/{CANARY}")),
    tool("a reference to another kind", "spec.auth.oauthAppRef", "not a reference to an OAuthApp", ("OAuthApp/acme", f"@@Model/{CANARY}")),
    tool("a reference without a kind", "spec.auth.oauthAppRef", "not a reference", ("OAuthApp/acme", f"@@{CANARY}")),
    tool("a reference with another api version", "spec.auth.oauthAppRef.apiVersion", "unknown value", ("OAuthApp/acme", f"{{kind: OAuthApp, name: acme, apiVersion: @@{CANARY}}}")),
    tool("no reference", "spec.auth.oauthAppRef", "missing", ("oauthAppRef: OAuthApp/acme, ", ""), ("  auth: {scopes", "  @@auth: {scopes")),
    tool("a scope the app does not have", "spec.auth.scopes[1]", "the OAuthApp does not have", ("scopes: [read, write]", f"scopes: [read, @@{CANARY}]")),
    tool("a scope in another case", "spec.auth.scopes[1]", "the OAuthApp does not have", ("scopes: [read, write]", "scopes: [read, @@Write]")),
    tool("a scope twice", "spec.auth.scopes[1]", "the same scope twice", ("scopes: [read, write]", "scopes: [read, @@read]")),
    tool("an export that widens", "spec.exports[0].auth.scopes[1]", "the tool does not declare", ("scopes: [read, write]", "scopes: [read]"), ("{scopes: [read]}}", "{scopes: [read, @@write]}}")),
    tool("an export with an undeclared scope", "spec.exports[0].auth.scopes[0]", "the tool does not declare", ("{scopes: [read]}}", f"{{scopes: [@@{CANARY}]}}}}")),
    tool("an export with an app of its own", "spec.exports[0].auth.?", "known here: scopes", ("auth: {scopes: [read]}", "auth: {@@oauthAppRef: OAuthApp/acme}")),
    tool("an export with auth but no name", "spec.exports[0].name", "missing", ("{name: hit, auth", "@@{auth")),
    tool("two exports of one name", "spec.exports[1].name", "the same export twice", ("{name: hold}", "{name: @@hit}")),
    tool("an auth that is a list", "spec.auth", "not a mapping", ("{oauthAppRef: OAuthApp/acme, scopes: [read, write]}", f"@@[{CANARY}]")),
    tool("an export's auth without its tool's", "spec.exports[0].auth", "without its tool's", ("  auth: {oauthAppRef: OAuthApp/acme, scopes: [read, write]}\n", ""), ("{name: hit, auth", "{name: hit, @@auth")),
    tool("an unknown field of auth", "spec.auth.oauthAppref", "the nearest known name is oauthAppRef", ("scopes: [read, write]", "scopes: [read, write], @@oauthAppref: x")),
    connector("both ways to authenticate", "spec.auth", "exactly one of oauthAppRef and staticToken", ("auth: {", "auth: @@{oauthAppRef: OAuthApp/acme, ")),
    connector("no way to authenticate", "spec.auth", "exactly one of oauthAppRef and staticToken", ("{staticToken: {valueFrom: {env: CHAT_TOKEN}}}", "@@{}")),
    connector("a plain token", "spec.auth.staticToken.value", "a secret in plain YAML", ("{valueFrom: {env: CHAT_TOKEN}}", f"{{value: @@{CANARY}}}")),
    connector("a bare token", "spec.auth.staticToken", "a secret as plain text", ("{valueFrom: {env: CHAT_TOKEN}}", f"@@{CANARY}")),
    connector("scopes beside a token", "spec.auth.scopes", "scopes beside a static token", ("auth: {", "auth: {@@scopes: [read], ")),
    connector("an unknown app of a connector", "spec.auth.oauthAppRef", "no such OAuthApp", ("{staticToken: {valueFrom: {env: CHAT_TOKEN}}}", f"{{oauthAppRef: @@OAuthApp/{CANARY}}}")),
]
AT_API = "  scopes: [read, write]"


def api(claim: str, path: str, what: str, written: str, *more: Change) -> Refusal:
    return app(claim, f"spec.api.{path}", what, (AT_API, f"  api: {{{written}}}\n{AT_API}"), *more)


API = [
    *(api(f"a host {claim}", "hosts[0]", "not a host", f"hosts: [@@'{text}']") for claim, text in (
        ("with a scheme", f"https://{CANARY.lower()}.example"), ("in capitals", f"API.{CANARY}.example"), ("with a path", "api.example/v1"),
        ("with a user", "me@api.example"), ("with a dot at its end", "api.example."), ("with a wildcard", "*.example"),
        ("with an empty label", "api..example"), ("with port 0", "api.example:0"), ("with a port that is none", "api.example:99999"),
        ("with half a port", "api.example:"), ("with a look-alike letter", "\u0430pi.example"), ("that is an IPv6 address", "[2001:db8::1]"),
        ("that some parsers take for an address", "127.1"), ("that ends in a hexadecimal number", "api.0x7f"), ("that is empty", ""),
        ("with an underscore", "my_api.example"), ("with a backslash", "api.example\\x"), ("with spaces", "api.example "),
    )),
    api("a public address", "hosts[0]", "an address instead of a name", "hosts: [@@8.8.8.8]"),
    api("this machine without a scheme", "hosts[0]", "write http://127.0.0.1:8519, or https://127.0.0.1:8519", "hosts: [@@'127.0.0.1:8519']"),
    api("localhost", "hosts[0]", "write http://127.0.0.1:8519, or", "hosts: [@@'localhost:8519']"),
    api("this machine without a port", "hosts[0]", "write http://127.0.0.1, or", "hosts: [@@127.0.0.1]"),
    api("https at the port of http", "hosts[0]", "leave the port out", "hosts: [@@'api.example:80']"),
    api("a private address", "hosts[0]", "providerNetworks", "hosts: [@@10.0.0.1]"),
    api("plain http without the switch", "hosts[0]", "weaken: [plainHttpProvider]", "hosts: [@@'http://127.0.0.1:80']"),
    api("plain http elsewhere", "hosts[0]", "http instead of https", "hosts: [@@'http://10.0.0.1']"),
    api("a host twice", "hosts[1]", "the same host twice", "hosts: [api.example, @@'api.example:443']"),
    api("no hosts", "hosts", "an empty list", "hosts: @@[]"),
    api("a number as a host", "hosts[0].name", "not text", "hosts: [{name: @@12}]"),
    api("a name beside providerData", "hosts[0]", "keep one of the two", "hosts: [@@{name: api.example, providerData: x}]"),
    api("a host of an account without its domain", "hosts[0]", "half of a host", "hosts: [@@{providerData: x}]"),
    api("a host of an account within everything", "hosts[0]", "two labels", "hosts: [@@{providerData: x, within: .com}]"),
    api("a host of an account in a domain without a dot", "hosts[0]", "two labels", "hosts: [@@{providerData: x, within: my.example.com}]"),
    api("a host that tools do not get", "hosts[0]", "quirks.toolData", "hosts: [@@{providerData: x, within: .my.example.com}]"),
    api("a method that is none", "methods[0]", "use 'GET'", f"hosts: [api.example], methods: [@@{CANARY}]"),
    api("TRACE", "methods[1]", "use 'GET'", "hosts: [api.example], methods: [GET, @@TRACE]"),
    api("a method twice", "methods[1]", "the same method twice", "hosts: [api.example], methods: [GET, @@GET]"),
    api("no methods", "methods", "an empty list", "hosts: [api.example], methods: @@[]"),
    api("a header that is none", "headers[0]", "not the name of a header", "hosts: [api.example], headers: [@@'a b']"),
    api("a header twice", "headers[1]", "the same header twice", "hosts: [api.example], headers: [X-Tenant, @@x_tenant]"),
    api("a header that never goes out", "headers[0]", "never goes to a provider", "hosts: [api.example], headers: [@@X_Forwarded_For]"),
    api("a header that overrides the method", "headers[0]", "never goes to a provider", "hosts: [api.example], headers: [@@X-HTTP-Method]"),
    api("no headers", "headers", "an empty list", "hosts: [api.example], headers: @@[]"),
    api("a delivery that is none", "delivery", "use 'injected'", f"hosts: [api.example], delivery: @@{CANARY}"),
    app("injection without hosts", "spec.api.hosts", "missing", (AT_API, f"  @@api: {{delivery: injected}}\n{AT_API}")),
    tool("injection by a tool of an app without hosts", "spec.auth.delivery", "without api.hosts", ("scopes: [read, write]", "scopes: [read, write], delivery: @@injected")),
    tool("a delivery of a tool that is none", "spec.auth.delivery", "use 'injected'", ("scopes: [read, write]", f"scopes: [read, write], delivery: @@{CANARY}")),
]
# fmt: on
MISTAKES = [
    *HEADERS,
    *SHAPES,
    *PROVIDERS,
    *FLOWS,
    *DEVICES,
    *MACHINES,
    *PUSHING,
    *URLS,
    *API,
    *SCOPES,
    *REDIRECTS,
    *QUIRKS,
    *OPTIONS,
    *BROKERS,
    *TOOLS,
]
