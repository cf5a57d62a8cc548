"""Requests to a provider's API that carry a token which their caller never holds."""
