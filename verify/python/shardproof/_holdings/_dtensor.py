"""The classes of `torch.distributed.tensor`. It is not imported here, which takes seconds: where
nobody has done so, nothing is of these classes."""

import sys


def class_of(name: str) -> type | None:
    """None if it was not imported, or torch was built without it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), name, None)


def is_a(name: str, value) -> bool:
    """Whether it is of the class of that name."""
    found = class_of(name)
    return found is not None and isinstance(value, found)
