"""What may take a small part of the time only."""

import time

_PARTS = 20


class Seldom:
    """`if seldom.is_due(): with seldom: ...` takes at most one part in 20 of the time."""

    def __init__(self):
        self._due = self._began = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def __enter__(self):
        self._began = time.monotonic()

    def __exit__(self, *error):
        now = time.monotonic()
        self._due = now + (now - self._began) * _PARTS
