"""Spaces as their log makes them: encoding, state, snapshots, recovery, and the engine."""
