"""Records: what a rank says of one tensor, and which rank judges it."""

import dataclasses
import functools
import hashlib

import torch

from ._groups import Groups


@dataclasses.dataclass(slots=True)
class Record:
    """One tensor on one rank. The last four fields are of its values; what comes before them
    describes it, and seldom changes from call to call."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    placements: tuple
    groups: Groups | None  # None: nobody said which ranks hold it
    meta: bool
    unreadable: str
    aliases: str  # the first name that shares its memory
    unique: bool = False  # the name means this tensor on all ranks, beyond its groups too
    numbers: bool = True  # its values are numbers of the model, not codes in a container
    drifts: str = ""  # it may differ: "batches", by what each rank has seen; "own", of itself
    accumulates: bool = False  # it was written in place again and again: it may be a statistic
    computed: bool = False  # the shape is that of a part, times the number of parts
    partly: bool = False  # a parameter: the rank's optimizer has state of others, not of this;
    # state: the rank's optimizer has none of some other parameter
    frozen: bool = False  # a parameter that needs no gradient
    cached: bool = False  # a buffer that is not saved
    pieced: bool = False  # put together from parts of other tensors, by a map
    followed: bool = False  # its values are held against a seal, under a map, and nowhere else
    misfit: str = ""  # how its memory contradicts its placement
    coverage: tuple[int, int] = (0, 0)
    digest: tuple[int, int] = (0, 0)
    nan: int = 0
    inf: int = 0
    first_non_finite: int | None = None

    @property
    def element_bytes(self) -> int:
        return bytes_of(self.dtype)


@functools.cache
def bytes_of(dtype: str) -> int:
    """Of an element of the dtype of that name."""
    return getattr(torch, dtype.removeprefix("torch.")).itemsize


def parameter_of(name: str) -> str:
    """That of which `name` would be the optimizer's state."""
    own = name.removeprefix("optimizer.").rpartition(".")[0]
    return own.partition(".<optimizer ")[0]  # one of several that step it


def place_of(name: str) -> int:
    """A number in [0, 2^64), the same on all ranks and in all runs. An optimizer's state has that
    of its parameter: whether it may be absent depends on what a rank has of that."""
    home = parameter_of(name) if name.startswith("optimizer.") else name
    hashed = hashlib.blake2b(home.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(hashed.digest(), "little")


def judge_of(name: str, world_size: int) -> int:
    """The rank that judges what all ranks say of a name."""
    return place_of(name) % world_size
