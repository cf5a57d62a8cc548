"""The keys of a store: the keyring, its file, the keys that open it, and their rotation."""
