"""The port of a store, and the form of names, tags and sealed bytes."""
