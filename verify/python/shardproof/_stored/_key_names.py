"""Which tensor of a checkpoint is which of the model: by name, below one prefix."""

from collections import Counter

# Of prefixes under which as many names match, one of these is taken.
_USUAL = ("", "model.", "app.model.", "module.", "state_dict.")


class Ambiguous(ValueError):
    """Several prefixes serve equally well."""


def prefix_of(wanted, stored, path="") -> str | None:
    """The prefix under which most of the names `wanted` are among `stored`; None if none are.

    \\raises Ambiguous if several are equally good.
    """
    return best_of(counts_of(wanted, stored), path)


def counts_of(wanted, stored) -> Counter[str]:
    """Of each prefix, how many of the names `wanted` are among `stored` below it."""
    wanted = set(wanted)
    counts: Counter[str] = Counter()
    for name in stored:
        parts = name.split(".")
        for first in range(len(parts)):
            if ".".join(parts[first:]) in wanted:
                counts["".join(part + "." for part in parts[:first])] += 1
    return counts


def best_of(counts: Counter[str], path="") -> str | None:
    """\\raises Ambiguous if several are equally good."""
    if not counts:
        return None
    most = max(counts.values())
    best = sorted(prefix for prefix, count in counts.items() if count == most)
    usual = [prefix for prefix in _USUAL if prefix in best]
    if len(best) > 1 and not usual:
        where = f"{path}: " if path else ""
        raise Ambiguous(
            f"{where}equally many names match below {best[0]!r} and below {best[1]!r}: "
            "pass the model's as prefix="
        )
    return usual[0] if usual else best[0]
