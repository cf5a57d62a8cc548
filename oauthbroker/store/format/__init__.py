"""The port of a store, and the form of what it keeps: names, tags, sealed bytes."""
