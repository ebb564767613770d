"""Where this package lies, and which code is its own."""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))


def is_ours(filename: str) -> bool:
    """Whether it is a file of Shardproof's that runs in a job, and no test of it."""
    return filename.startswith(FOLDER + os.sep) and not filename.endswith("_test.py")
