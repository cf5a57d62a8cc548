"""Check one app's owner: whether its account can be learnt, and which users may connect it (case 40)."""

from __future__ import annotations

import re
from typing import Final

from oauthbroker.config.checks.broker import is_local, page_problem
from oauthbroker.config.values.preset_endpoints import unused_parts
from oauthbroker.config.values.preset_merge import MCP, Identity, Merged
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import ANYONE, IdentitySource
from oauthbroker.model.connect_params import params_in
from oauthbroker.model.owner_check import spelling
from oauthbroker.model.settings import Settings
from oauthbroker.model.turn import SubjectMode

_CLAIM = re.compile(r"\*?[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}|https://[A-Za-z0-9._~/-]{1,200}")
_LITERAL = re.compile(r"[A-Za-z0-9._:@/+-]*")
_ACCOUNT = re.compile(r"[^\x00-\x20\x7f]{1,1024}")
_ANSWERS: Final[dict[IdentitySource, str]] = {
    "tokenResponse": "the token response",
    "idToken": "an ID token",
    "userInfo": "a userinfo endpoint",
}


def check_binding(app: Merged, settings: Settings, *, login: bool) -> None:
    """`login`: the Broker has a login of its own."""
    if app.spec.flow in {None, "clientCredentials"} or not app.written.whole("owner", "binding"):
        return
    if app.binding == "localOperator" and not is_local(settings):
        what = "localOperator away from loopback: any caller would be its operator"
        app.written.refuse(
            ("owner", "binding"), what, "listen on 127.0.0.1 with a loopback publicBaseUrl, or remove it"
        )
    if app.binding == "brokerLogin":
        _check_broker_login(app, login=login)
    _check_confirm_url(app)
    if app.spec.accounts == "several":
        _check_accounts(app)
    if app.redirect.link == "direct" and not (
        app.binding == "localOperator" or (app.binding == "providerIdentity" and app.mode == "user")
    ):
        what = "a direct link gives up the browser check, which this app relies on"
        app.written.refuse(("redirect", "link"), what, "write link: connect")


def _check_broker_login(app: Merged, *, login: bool) -> None:
    """Check that the login fits. It identifies one user and no team."""
    path, is_key = ("owner", "binding"), app.written.kind == "CredentialApp"
    if app.mode == "global":
        what = "brokerLogin knows people, and a global subject is none"
        hint = "write providerIdentity: identity.global and authorizers say who may connect it for the team"
        key_hint = "remove it, so that verify.account names the account, or write localOperator"
        app.written.refuse(path, what, key_hint if is_key else hint)
    elif not login:
        what, other = (
            "binding: brokerLogin needs a login in the Broker",
            "localOperator" if is_key else "runtimeConfirm",
        )
        app.written.refuse(path, what, f"write login: in the Broker, or binding: {other}")


def _check_accounts(app: Merged) -> None:
    """Check that another account of the same user can be told from a stranger's (specification 12.5.6 (5))."""
    if app.mode == "global":
        what = "a team is one account, so it cannot have several"
        app.written.refuse(("accounts",), what, "remove it, or write subjectMode: user", key=True)
    elif app.binding == "providerIdentity":
        what = "with binding: providerIdentity another account of the user looks like a stranger's"
        more = "" if app.written.kind == "CredentialApp" else ", runtimeConfirm, channelCode"
        hint = f"write owner.binding: brokerLogin{more} or, on loopback, localOperator"
        app.written.refuse(("accounts",), what, hint)


def _check_confirm_url(app: Merged) -> None:
    """Check the page of `runtimeConfirm`: it needs exactly one, and other bindings none."""
    path = ("owner", "confirmUrl")
    url = app.spec.owner.confirm_url if app.spec.owner else None
    if app.binding != "runtimeConfirm":
        if url is not None:
            app.written.refuse(path, "a page of the runtime is for binding: runtimeConfirm", "remove it", key=True)
    elif url is None:
        app.written.missing(path, "write the runtime's page where users are signed in")
    elif problem := page_problem(url):
        app.written.refuse(path, *problem)


def check_identity(app: Merged) -> None:
    """Check who may own what comes back, unless a setting that decides it is refused or missing."""
    known = app.spec.flow and app.spec.provider and app.spec.subject_mode and app.written.whole("owner", "binding")
    if not known or app.spec.flow == "clientCredentials":
        return
    for mode in app.identities_used:
        _check_rule(app, mode, app.identities[mode])
    if app.mode == "global":
        _check_authorizers(app)
    elif app.spec.owner is not None and app.spec.owner.authorizers is not None:
        what = "authorizers are for subjectMode: global"
        app.written.refuse(("owner", "authorizers"), what, "remove them: the person's own account decides", key=True)


def _check_rule(app: Merged, mode: SubjectMode, identity: Identity) -> None:
    path = ("owner", "identity", mode)
    if not app.written.whole(*path):
        return
    if identity.source is None or not identity.template:
        _refuse_unknown_owner(app, mode, identity)
        return
    _check_source(app, mode, identity.source)
    problem = template_problem(identity.template)
    if problem:
        app.written.refuse((*path, "template"), *problem)


def _refuse_unknown_owner(app: Merged, mode: SubjectMode, identity: Identity) -> None:
    """Refuse a rule without its source or its template. With a device code that is a refusal of its own (12.5.7)."""
    code = Code.DEVICE_CODE_UNSUPPORTED if app.spec.flow == "deviceCode" else Code.CONFIG_INVALID
    who = "whose account comes back" if mode == "user" else "which team or organisation comes back"
    what = f"{code.value}: " if code is not Code.CONFIG_INVALID else ""
    what += f"nothing tells {who}" + ("" if mode == app.mode else ", and authorizers are compared with it")
    if app.preset is not None and identity.source is None:
        what += f": {app.preset.title}'s answers do not say it by themselves"
    missing = "from" if identity.source is None else "template"
    hint = "write from: tokenResponse, idToken or userInfo, and a template" if missing == "from" else (
        'write a template with a prefix of your own, such as "acme:user:{sub}"'
    )  # fmt: skip
    if app.spec.provider == MCP and mode == "user" and app.mode == "user":
        hint = f"write owner.binding: brokerLogin, runtimeConfirm or channelCode; or, where the server tells it, {hint}"
    app.written.refuse(("owner", "identity", mode, missing), what, hint + app.meant_preset, code)


def _check_source(app: Merged, mode: SubjectMode, source: IdentitySource) -> None:
    path = ("owner", "identity", mode, "from")
    ends = app.endpoints
    what = f"{_ANSWERS[source]} is not to be had here"
    if app.preset is not None and app.place.dropped:
        what = f"{what}: {unused_parts(app.place.dropped, app.preset)[0]}"
    if app.spec.provider == MCP:  # the server's metadata tells
        return
    if source == "idToken" and not (ends.issuer or (app.habits.issuer_template and ends.jwks_url)):
        app.written.refuse(
            path, what, "write endpoints.issuer (its discovery names the keys), or read it from elsewhere"
        )
    if source == "userInfo" and not (ends.user_info_url or ends.issuer):
        app.written.refuse(path, what, "write endpoints.userInfoUrl, or an issuer that has discovery")


def template_problem(template: str) -> tuple[str, str] | None:
    """Return (problem, remedy) for a template that is malformed or cannot tell accounts apart, else None."""
    rest = re.sub(r"\{[^{}]*\}", "", template)
    names = params_in(template)
    if not _LITERAL.fullmatch(rest) or not all(_CLAIM.fullmatch(name) for name in names):
        return "not a template", "write words and {path.to.claim}, such as slack:user:{team.id}:{authed_user.id}"
    if not names:
        return "a template without a {claim} fits every account", "name the claim that tells accounts apart"
    if re.search(r"\}[^:{}]*\{", template):
        return "two claims without a : between them", "write one: it is what no claim can hold"
    if "{*" in template and (len(names) > 1 or not template.endswith("}")):
        return "a {*claim} beside something else", "it may hold colons, so it has to be the only claim and the end"
    if not re.match(r"[A-Za-z0-9]", template):
        return "a template without a prefix", "begin with the provider's name, as the runtime's subjects do"
    return None


def _check_authorizers(app: Merged) -> None:
    path = ("owner", "authorizers")
    written = app.spec.owner.authorizers if app.spec.owner else None
    if written is None:
        hint = "list the accounts that may connect it for the team, or write `authorizers: anyone`"
        app.written.missing(path, hint)
        return
    if not written:
        app.written.refuse(path, "an empty list: no account could connect this app", "name accounts, or write `anyone`")
    if written == [ANYONE]:
        return
    rule = app.identities["user"].rule
    shape = spelling(rule.template) if rule and not template_problem(rule.template) else _ACCOUNT
    for index, account in enumerate(written):
        if not _ACCOUNT.fullmatch(account) or not shape.fullmatch(account):
            what = "an account that owner.identity.user can never produce"
            app.written.refuse((*path, index), what, "write it exactly as the template of identity.user spells it")
        elif account in written[:index]:
            app.written.refuse((*path, index), "the same account twice", "remove one")
