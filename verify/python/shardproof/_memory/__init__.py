"""The memory of a process: how much, since when, and who holds it."""
