"""A rank of a subject, as the engine starts it."""
