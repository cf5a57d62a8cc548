"""Processes of their own for tools: `isolation: process`, and the commands that the base tools run."""
