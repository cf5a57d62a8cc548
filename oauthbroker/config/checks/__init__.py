"""Check what models cannot say: one file for each kind of resource or part of one."""
