"""API v1: for runtimes, operators, and tools in other processes. `operations.OPERATIONS` is what there is."""
