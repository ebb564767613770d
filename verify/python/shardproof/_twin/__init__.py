"""The plain twin: the model of a subject in one process, loaded and trained without sharding."""
