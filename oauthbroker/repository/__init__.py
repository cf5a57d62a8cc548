"""Read and write typed records in the store. The only writer of OAuth state."""
