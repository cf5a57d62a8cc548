"""For operators: the grants there are, the record of one, and its end."""

from __future__ import annotations

import re

from starlette.responses import Response

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.found_records import Erased
from oauthbroker.grants.grant_pages import GrantFilter
from oauthbroker.grants.grants import checked_filter
from oauthbroker.model.token_request import WrongArgument
from oauthbroker.records import specification_form
from oauthbroker.web.api.authentication import id_of
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, reply
from oauthbroker.web.api.proxied_body import ProxiedBody
from oauthbroker.web.api.request_models import EraseSubject, GrantPath, GrantsQuery, NoParameters
from oauthbroker.web.gate.request_limits import UnsupportedBody, may_take_long
from oauthbroker.web.middleware.exchange import only_value

_LINES, _KEY = b"application/x-ndjson", re.compile(rb"[\x21-\x7e]{1,128}")


async def list_grants(call: ApiCall[NoParameters, GrantsQuery, NoParameters]) -> Response:
    """List a page of grants in the store's order. A page of a rare state may be short: it looks at some thousand."""
    asked = call.query
    app = checked_filter(asked.app, asked.subject)
    wanted = GrantFilter(app=app, subject=asked.subject, state=asked.state, after=asked.after)
    page, goes_on = await call.services.grants.page(wanted, asked.limit)
    if not page and app is not None:
        await call.services.grants.check_known(app)
    more = {"next": goes_on} if goes_on is not None else {}
    return reply({"grants": [summary.to_json() for summary in page], **more})


async def import_grants(call: AnyCall) -> Response:
    """Import grants, JSON lines that are written as they come. Nothing of a line is stored but the grant it becomes."""
    headers = call.request.scope["headers"]
    kind, key = only_value(headers, b"content-type") or b"", only_value(headers, b"idempotency-key") or b""
    if kind.partition(b";")[0].strip().lower() != _LINES:
        raise UnsupportedBody("importLines")
    if not _KEY.fullmatch(key) or call.caller is None:
        raise WrongArgument("idempotencyKey", "Idempotency-Key", "value" if key else "missing")
    await call.made()
    may_take_long(call.request)  # each piece of the body has a limit
    pieces = ProxiedBody(call.request).pieces()
    return reply(await call.services.grants.import_requests.run(id_of(call.caller), key.decode(), pieces, call.still))


async def grant_record(call: ApiCall[NoParameters, NoParameters, GrantPath]) -> Response:
    """Return a grant as the specification prints it, revoked or not, with its secrets masked."""
    record = await call.services.grants.record(call.path.grantId)
    if record is None:
        raise BrokerError(Code.GRANT_NOT_FOUND)
    return reply(specification_form.grant_record(record))


async def end_grant(call: ApiCall[NoParameters, NoParameters, GrantPath]) -> Response:
    """End a grant here at once, and at the provider as soon as it answers. A grant that ended before is sent again to a
    provider that does not know yet."""
    summary = await call.services.grants.find(call.path.grantId)
    outcome = None
    if summary is not None:
        await call.made(summary.grantId)
        outcome = await call.services.grants.revoke(*summary.key)
    if outcome is None:
        raise BrokerError(Code.GRANT_NOT_FOUND)
    app = call.services.config.bundle.apps.get(summary.app) if summary is not None else None
    pages = app.credential.places if app is not None and app.credential is not None else ()
    return reply({"grantId": call.path.grantId, "provider": outcome, **({"endAt": list(pages)} if pages else {})})


async def erase_subject(call: ApiCall[EraseSubject, NoParameters, NoParameters]) -> Response:
    """Erase a subject. Providers are not waited for: while one has to be told, the same call goes on later."""
    erasure, subject = call.services.erasure, call.body.subject
    if call.body.dryRun:
        return reply(Erased(False, await erasure.find_records(subject)).to_json())
    await call.made()
    return reply((await erasure.erase(subject)).to_json())
