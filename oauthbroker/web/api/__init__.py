"""API v1: for runtimes, operators, and tools in other processes. `call_table.OPERATIONS` is what there is."""
