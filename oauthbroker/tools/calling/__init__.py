"""One call of a tool: registry, context, journal, handler."""
