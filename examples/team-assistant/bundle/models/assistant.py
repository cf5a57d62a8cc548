"""The scripted model of the assistant: it sets a reminder when the user says "in N hours", and
changes the greeting of the bundle on "Begin answers with ...". Otherwise it reads the mail,
asks the writer, and answers. It shows links as they come."""

from __future__ import annotations

import json
import re

from oauthbroker.tools import ModelAnswer, ModelRequest, ToolCall, ToolCallResult

HOURS = re.compile(r"\bin (\d{1,6}) hours\b")
GREETING = re.compile(r"^Begin answers with (.{1,80})$")


class Assistant:
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer the newest message: a user's question, an event of the broker, or the result of a call."""
        newest = request.messages[-1]
        if newest.result is not None:
            return after(newest.result, request)
        if newest.role == "system" and json.loads(newest.text)["type"] != "auth.granted":
            return ModelAnswer("The mail is not connected. Ask me again, and I send you a new link.")
        if newest.role == "user" and (found := HOURS.search(newest.text)):
            return ModelAnswer("", [ToolCall("set", "reminders__set", {"text": newest.text, "hours": int(found[1])})])
        if newest.role == "user" and GREETING.match(newest.text):
            return ModelAnswer("", [ToolCall("open", "swarmBundle__openChangeset", {})])
        return ModelAnswer("", [ToolCall("mail", "mail__list", {})])


def after(result: ToolCallResult, request: ModelRequest) -> ModelAnswer:
    """Go on after the result of a call."""
    if result.error is not None:
        return ModelAnswer(" ".join([result.error.message, result.error.suggestion or ""]).strip())
    if result.tool_name == "mail__list":
        asked = {"target": "writer", "input": json.dumps(result.output)}
        return ModelAnswer("", [ToolCall("ask", "agents__request", asked)])
    if result.tool_name == "reminders__set":
        return ModelAnswer(result.output)
    if result.tool_name == "agents__request":
        return ModelAnswer(result.output["response"])
    return changing(result, request)


def changing(result: ToolCallResult, request: ModelRequest) -> ModelAnswer:
    """Go on with the change of the greeting: write it into the changeset, commit, tell the end."""
    if result.tool_name == "swarmBundle__commitChangeset":
        return ModelAnswer(f"The change of the bundle is {result.output['status']}.")
    said = [each.text for each in request.messages if each.role == "user"][-1]
    opened = [
        each.result for each in request.messages if each.result and each.result.tool_name.endswith("__openChangeset")
    ]
    changeset, found = opened[-1].output, GREETING.match(said)
    if result.tool_name == "file-system__write" or found is None:
        return ModelAnswer(
            "", [ToolCall("commit", "swarmBundle__commitChangeset", {"changesetId": changeset["changesetId"]})]
        )
    path = f"{changeset['workdir']}/prompts/greeting.txt"
    return ModelAnswer("", [ToolCall("write", "file-system__write", {"path": path, "content": found[1]})])


model = Assistant()
