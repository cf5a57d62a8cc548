"""The values of the tool runtime: results, failures, names, messages, events, parameters."""
