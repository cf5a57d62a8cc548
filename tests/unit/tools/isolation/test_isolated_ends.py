"""Each end of a handler is told to the model alike, in the agent's process and in a process of its own: the table of
docs/tools.md."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import CallScope, StepFacts
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool, TurnAccess
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import ToolCall, ToolCallResult
from tests.unit.tools.contexts import context

ENTRY = """\
import asyncio
from datetime import UTC, datetime

from oauthbroker import AuthorizationRequiredError, AuthorizationRequired, BrokerError, Code, Failed, RequestRefusedError
from oauthbroker.model.token_results import DevicePrompt
from oauthbroker.tools import Submitted, ToolFailure

DEVICE = DevicePrompt(verification_uri="https://login.example/d", verification_uri_complete=None, user_code="AB-CD", interval=5)
ASKED = AuthorizationRequired(
    auth_session_id="as-1", authorization_url="https://login.example/x", expires_at=datetime(2027, 1, 1, tzinfo=UTC),
    message="Please connect mail.", reason="noGrant",
)
WITH_CODE = AuthorizationRequired(
    auth_session_id="as-2", authorization_url="https://login.example/y", expires_at=datetime(2027, 1, 1, tzinfo=UTC),
    message="Please connect mail.", reason="noGrant", device_code=DEVICE,
)
REFUSED = Failed(code=Code.APP_FORBIDDEN, message="The app is not allowed.", retryable=False)


def thrown(error):
    raise error


ENDS = {
    "json": lambda: {"sky": ["clear", 1, None]},
    "consent": lambda: ASKED,
    "consent with a code": lambda: WITH_CODE,
    "consent, raised": lambda: thrown(AuthorizationRequiredError(ASKED)),
    "refused": lambda: REFUSED,
    "refused, raised": lambda: thrown(RequestRefusedError(REFUSED)),
    "broker error": lambda: thrown(BrokerError(Code.APP_FORBIDDEN)),
    "submitted": lambda: Submitted("job-7"),
    "failure": lambda: thrown(ToolFailure("No city.", name="City", code="E_CITY", suggestion="Another.", help_url="https://h.example")),
    "exception": lambda: thrown(ValueError("wrong")),
    "long exception": lambda: thrown(ValueError("x" * 1_000_000)),
    "exit": lambda: thrown(SystemExit(3)),
    "group": lambda: thrown(ExceptionGroup("two", [AuthorizationRequiredError(ASKED)])),
    "a dictionary like consent": lambda: ASKED.to_json(),
    "set": lambda: {1, 2},
    "date": lambda: datetime(2027, 1, 1, tzinfo=UTC),
    "class": lambda: ToolFailure("returned"),
    "large": lambda: "x" * 300_000,
}


def plain(ctx, args):
    return ENDS[args["end"]]()


async def waits(ctx, args):
    return ENDS[args["end"]]()


handlers = {"plain": plain, "waits": waits}
"""


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tool") / "ends.py"
    file.write_text(ENTRY, "utf-8")
    return file


def loaded(entry: Path) -> Any:
    spec = importlib.util.spec_from_file_location("ends_of_handlers", entry)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def isolated(entry: Path, *, lent: bool = True) -> ProcessTool:
    access = TurnAccess("http://127.0.0.1:9", "turn-token") if lent else None
    return ProcessTool(entry=entry, containment=Containment(), lend=lambda _ctx: nullcontext(access))


async def ended(handler: Any, end: str, tmp_path: Path, export: str = "plain") -> ToolCallResult:
    registry, name = Registry(), f"ends__{export}"
    registry.register(ToolCatalogItem(name=name), handler, owner="Tool/ends")
    calls = ToolCalls(registry, lambda reported: reported)
    facts = {each.name: getattr(context(workdir=tmp_path), each.name) for each in fields(StepFacts)}
    there = CallScope(**facts, catalog=registry.catalog(["ends"]))
    return await calls.perform(ToolCall("call-1", name, {"end": end}), there)


def ends() -> list[str]:
    found: dict[str, Any] = {}
    exec(ENTRY, found)  # noqa: S102  (our own)
    return list(found["ENDS"])


@pytest.mark.rule("002-2.4-1", "002-2.4-5")
@pytest.mark.parametrize("end", ends())
async def test_an_isolated_handler_ends_its_call_as_one_in_the_agents_process(entry: Path, tmp_path: Path, end: str):
    here = await ended(loaded(entry).plain, end, tmp_path)
    assert here == await ended(isolated(entry), end, tmp_path)


async def test_so_does_one_with_await(entry: Path, tmp_path: Path):
    here = await ended(loaded(entry).waits, "consent with a code", tmp_path, "waits")
    assert here == await ended(isolated(entry), "consent with a code", tmp_path, "waits")
    assert here.error is not None
    assert "E_AUTHORIZATION_REQUIRED" == here.error.code
    assert "https://login.example/y https://login.example/d AB-CD" in (here.error.suggestion or "")


async def test_a_request_for_consent_of_a_tool_that_was_lent_no_token_is_none(entry: Path, tmp_path: Path):
    """It comes from a process that is not trusted, and asks the user to open a link."""
    result = await ended(isolated(entry, lent=False), "consent", tmp_path)
    assert result.error is not None
    assert ("E_TOOL", "ToolAnswerInvalid") == (result.error.code, result.error.name)
    assert "login.example" not in str(result.to_json())
