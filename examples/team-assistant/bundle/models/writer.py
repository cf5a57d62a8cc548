"""The scripted model of the writer: it puts a JSON list of messages into one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from oauthbroker.tools import ModelAnswer, ModelRequest

GREETING = Path(__file__).parents[1] / "prompts" / "greeting.txt"  # the assistant may change it


class Writer:
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer with the number of the messages and their texts."""
        messages = json.loads(request.messages[-1].text)
        return ModelAnswer(f"{GREETING.read_text('utf-8').strip()} {len(messages)} messages: {' '.join(messages)}")


model = Writer()
