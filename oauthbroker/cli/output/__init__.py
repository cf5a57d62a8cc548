"""How commands print: tables, JSON, errors, completion."""
