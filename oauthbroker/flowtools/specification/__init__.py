"""Flow tools as they are written: read, and checked by schema, types and policies."""
