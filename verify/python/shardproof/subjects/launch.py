"""The environment that a launcher would have given to a rank."""

import os


def as_launched(case, **more):
    """Sets what torchrun sets and frameworks read: this rank and how many there are, all on one
    machine. more: further variables, for a framework that asks for them."""
    os.environ.update(
        RANK=str(case.rank), LOCAL_RANK=str(case.rank), WORLD_SIZE=str(case.world_size), **more
    )  # fmt: skip
