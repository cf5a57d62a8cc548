"""ASGI middleware of every listener: access log, forwarded addresses, rate limits, security headers."""
