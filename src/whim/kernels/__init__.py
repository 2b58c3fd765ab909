"""Compiled arithmetic: arrays in, arrays out. No ids, no checks, no random state, no logging.

``jit`` compiles; ``linalg`` has the linear algebra, ``detection`` the change tests, ``models`` a
``State``, ``score`` and ``learn`` per policy, and ``loops`` makes from these the compiled loop, the
live calls and the batches.
"""
