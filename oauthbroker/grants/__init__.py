"""Grants as operators and users handle them: list, import, revoke, erase, connections."""
