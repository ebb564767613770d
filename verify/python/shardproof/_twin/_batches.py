"""Which ranks of a subject have taken which batches."""

import itertools


class Unequal(Exception):
    """Why nobody can say whose batches a step is of, in one line."""


def keys_of(batches) -> list:
    """Of a rank's batches: what they are determined by."""
    return [(each.case["rank"], each.case["seed"], each.step) for each, _ in batches]


def taken_twice(batches, same) -> tuple[list[int], str]:
    """Two ranks that have parts of the data of their own, and have taken the same one at once; else
    what is to be told of the same one at two times, as where a step goes on into the next epoch.
    batches: of each rank. same: see same_batches."""
    first, told = {}, ""
    for rank in sorted(set(same)):
        for place, key in enumerate(keys_of(batches[rank])):
            other, there = first.setdefault(key, (rank, place))
            if other != rank and there == place:
                return [other, rank], ""
            if other != rank:
                told = f"ranks {other} and {rank} have taken one batch at two times of a step"
    return [], told


def unusual(batches, taken, scale) -> list[str]:
    """What of a step's batches may be meant, and may be a mistake, in words. batches: of each rank.
    taken: the batches of the steps before, to which these are added. scale: of a GradScaler."""
    told = []
    batches = [own for own in batches if own]  # other ranks take no part in the loss
    first, *others = [sorted({each.step for each, _ in own}) for own in batches]
    if other := [numbers for numbers in others if numbers != first]:
        told.append(f"some ranks have taken batches {first} of a step, and others {other[0]}")
    again = {key for own in batches for key in keys_of(own)} & taken
    if again:
        told.append(f"rank {min(again)[0]} has taken a batch again that an earlier step has taken")
    taken.update(key for own in batches for key in keys_of(own))
    weights = [sum(each.weight for each, _ in own) / scale for own in batches]
    if why := _means_of_ranks(batches):
        told.append(why)
    elif not _are_even(weights):
        told.append("ranks have weighted their losses differently: "
                    + ", ".join(f"{each:.6g}" for each in weights))  # fmt: skip
    elif why := _means_of_parts([each for own in batches for each, _ in own]):
        told.append(why)
    return told


def _means_of_ranks(batches) -> str:
    """Of losses that are sums over targets, divided by how many a rank has: what they are."""
    parts = [[(each.weight, each.weight * each.summed) for each, _ in own] for own in batches]
    weights = [weight for own in parts for weight, _ in own]
    shares = [sum(share for _, share in own) for own in parts]
    if min(shares) <= 0 or _are_even(weights) or not _are_even(shares) or len(weights) < 2:
        return ""
    return ("its losses are sums over targets, and those of each rank are divided by its own "
            "number of targets: the mean of them is not that of all targets")  # fmt: skip


def _are_even(values) -> bool:
    return max(values) - min(values) <= 1e-6 * max(map(abs, values))


def _means_of_parts(batches) -> str:
    """Of losses that are means of unequal numbers of targets, and weigh the same: what they are."""
    weights, terms = [each.weight for each in batches], sorted({each.terms for each in batches})
    if len(terms) < 2 or terms[0] == 0 or not _are_even(weights):
        return ""
    return (f"its losses are means of {terms[0]} to {terms[-1]} targets, and weigh the same: the "
            "mean of them is not that of all targets")  # fmt: skip


def same_batches(batches) -> list[int]:
    """batches: of each rank. Of each rank: the first that has its part of the data. Along the axes
    dp_* ranks have parts of their own; along others, such as tp, they share one, or all have their
    own. \\raises Unequal."""
    mesh = next((own[0][0].case["mesh"] for own in batches if own), {})
    of_data = [number for number, axis in enumerate(mesh) if axis.startswith("dp_")]
    if len(of_data) == len(mesh):
        return list(range(len(batches)))
    first, same = {}, []
    for rank, place in enumerate(itertools.product(*map(range, mesh.values()))):
        same.append(first.setdefault(tuple(place[number] for number in of_data), rank))
    keys = [keys_of(own) for own in batches]
    if all(keys[rank] == keys[other] for rank, other in enumerate(same)):
        return same
    if len({tuple(own) for own in keys}) == len(keys):
        return list(range(len(batches)))
    others = " and ".join(axis for axis in mesh if not axis.startswith("dp_"))
    raise Unequal(f"along {others} some ranks have the same batches, and others not")
