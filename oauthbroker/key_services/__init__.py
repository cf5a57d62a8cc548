"""Keys outside this machine that open a keyring: Vault or OpenBao transit, AWS KMS, and providers of other packages.

A key service wraps the 32 bytes of a keyring's data key. It is asked at start, at `keys rewrap`, and by a running
broker after one; never to read or write a record. Values of the configuration may lie in Vault and AWS Secrets Manager.
"""
