"""Change detection: windows of plays, the tests on them, and arms that are worth a new look."""
