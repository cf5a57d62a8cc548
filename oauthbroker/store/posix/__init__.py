"""Files as a store needs them: system calls, atomic writes, checked reads, folders."""
