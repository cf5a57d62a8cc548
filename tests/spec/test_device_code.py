"""12.5.7: a flow that does not exist here is refused where it is configured, not where it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.errors import Code
from tests.unit.config.bundles import APP, GLOBAL, edited, problems_in, write

DEVICE = "  endpoints:\n    deviceAuthorizationUrl: https://acme.example/device\n"


@pytest.mark.rule("12.5.7")
@pytest.mark.case("95")
@pytest.mark.parametrize(
    "bundle",
    [
        edited(APP, ("flow: authorizationCode", "flow: deviceCode")),
        edited(APP, ("flow: authorizationCode", "flow: deviceCode"), ("  endpoints:\n", DEVICE)),
        edited(GLOBAL, ("flow: authorizationCode", "flow: deviceCode")),
    ],
    ids=["without an endpoint", "with an endpoint", "of a preset"],
)
def test_an_app_with_the_device_code_flow_does_not_load(bundle: str, tmp_path: Path) -> None:
    """With or without a device endpoint; the refusal names the field and says what to write."""
    [problem] = [it for it in problems_in(write(tmp_path / "b", app=bundle)) if it.code is Code.DEVICE_CODE_UNSUPPORTED]
    assert "spec.flow" == problem.path
    assert "authorizationCode" in problem.todo


@pytest.mark.rule("12.5.7")
def test_one_such_app_keeps_the_whole_bundle_out(tmp_path: Path) -> None:
    """Loading is all or nothing: the good app beside it is not taken either."""
    bad = edited(APP, ("flow: authorizationCode", "flow: deviceCode"), ("name: acme", "name: tv"))
    bad = edited(bad, ("/oauth/callback/acme", "/oauth/callback/tv"))
    problems = problems_in(write(tmp_path / "b", app=APP, tv=bad))
    assert {Code.DEVICE_CODE_UNSUPPORTED} == {problem.code for problem in problems}
    assert all(problem.file.endswith("tv.yaml") for problem in problems)
