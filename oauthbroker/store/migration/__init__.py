"""Move a store: its sealed records as they are, from one backend to another, and what keeps two copies apart."""
