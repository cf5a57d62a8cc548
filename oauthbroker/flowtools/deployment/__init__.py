"""Deployed versions of flow tools."""
