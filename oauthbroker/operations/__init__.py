"""What operators and people see and do: grants, connections, dead letters, imports, erasure, gauges."""
