"""Small forms, as browsers send them."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from oauthbroker.errors import BrokerError, Code

FORM = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a small urlencoded form; a field that comes twice is no field. Raises `requestInvalid`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise BrokerError(Code.REQUEST_INVALID, note="content-type")
    try:
        fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=16)
    except ValueError:
        fields = None
    if fields is None:
        raise BrokerError(Code.REQUEST_INVALID, note="form")
    return {name: values[0] for name, values in fields.items() if len(values) == 1}
