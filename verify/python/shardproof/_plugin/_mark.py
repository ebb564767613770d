"""`@pytest.mark.shardproof(...)`, read strictly. No torch here: pytest itself needs none."""

import dataclasses
import math

WORLD_MAX = 128
_KNOWN = "world, backend, deadline"


class BadMark(Exception):
    """What is wrong with a mark: one line."""


@dataclasses.dataclass(frozen=True)
class Mark:
    """world: ranks. backend: of init_process_group. deadline: seconds for a test on all ranks, its
    fixtures included."""

    world: int = 2
    backend: str = "gloo"
    deadline: float = 60.0


def read(mark) -> Mark:
    """mark: pytest's, of a test, its class or its module. \\raises BadMark."""
    if mark.args:
        raise BadMark(f"it takes {_KNOWN}, each by its name, and has {mark.args[0]!r} without one")
    unknown = sorted(set(mark.kwargs) - {field.name for field in dataclasses.fields(Mark)})
    if unknown:
        raise BadMark(f"there is no {unknown[0]!r}; it takes {_KNOWN}")
    found = Mark(**mark.kwargs)
    world, deadline = found.world, found.deadline
    if type(world) is not int or not 1 <= world <= WORLD_MAX:
        raise BadMark(f"world is {world!r}; it must be a whole number from 1 to {WORLD_MAX}")
    if not isinstance(found.backend, str) or not found.backend:
        raise BadMark(f"backend is {found.backend!r}; it must be the name of one, such as 'gloo'")
    if type(deadline) not in (int, float) or not (deadline > 0 and math.isfinite(deadline)):
        raise BadMark(f"deadline is {deadline!r}; it must be a number of seconds above 0")
    return found
