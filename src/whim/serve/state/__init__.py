"""Spaces as the fold of their log: encoding, state, snapshots, recovery, and the engine."""
