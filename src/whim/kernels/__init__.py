"""Compiled arithmetic: arrays in, arrays out; no ids, no checks, no random state."""
