"""Programs that the command starts in a Python of their own, each by its path."""
