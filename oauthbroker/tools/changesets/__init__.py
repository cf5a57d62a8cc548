"""Changesets: an agent edits a copy of the bundle, and the runtime makes a revision of it (README.md)."""
