"""Authenticate calls from other processes: turn tokens and API keys."""
