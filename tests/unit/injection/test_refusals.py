"""What the exceptions of a client that carries tokens say in a traceback."""

from __future__ import annotations

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.errors import RequestRefusedError
from oauthbroker.model.token_results import Failed


@pytest.mark.parametrize("code", [Code.API_NOT_DECLARED, Code.API_HOST_FORBIDDEN, Code.APP_FORBIDDEN])
def test_a_refused_request_says_its_code_and_what_to_do(code: Code) -> None:
    result = Failed.from_error(BrokerError(code), "en")
    assert f"{code.value}: {result.message}" == str(RequestRefusedError(result))
