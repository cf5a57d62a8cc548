"""A whole configuration: loaded from files, then resolved."""
