"""All ranks come together, by the job's store, before they begin what only all of them may begin.

dist.new_group is such a thing: torch counts its calls for the names of groups, so one that only
some ranks make leaves them with other names than the rest, in every later group of the job.
"""

import datetime


def meet(store, rank: int, world_size: int, deadline: float, what: str):
    """Returns on all ranks once all are there. Who comes after a round has ended begins a new one.

    \\raises RuntimeError, on all that came, once one of them has waited for `deadline` seconds.
    """
    key = f"shardproof/{what}"
    round_ = f"{key}/{store.add(f'{key}/ended', 0)}"
    end, here, ours = f"{round_}/end", f"{round_}/here", f"by rank {rank}"
    if store.add(here, 1) == world_size:
        ours = "all"
        _end(store, key, end, ours)
    else:
        try:
            store.wait([end], datetime.timedelta(seconds=deadline))
        except RuntimeError:  # what else is wrong with the store shows in the next line
            _end(store, key, end, ours)
    if store.get(end) != b"all":
        raise RuntimeError(f"{store.add(here, 0)} came")


def _end(store, key, end, how):
    """Of all that end a round, one counts."""
    if store.compare_set(end, "", how) == how.encode():
        store.add(f"{key}/ended", 1)
