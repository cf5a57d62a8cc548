"""One turn: the loop of model steps and tool calls, its conversation, the API of extensions."""
