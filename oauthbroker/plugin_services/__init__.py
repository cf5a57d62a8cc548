"""What a running broker offers to plug-ins: durable state, pinned texts, requests to the public web."""
