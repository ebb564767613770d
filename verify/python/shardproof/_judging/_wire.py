"""Records as they travel to the ranks that judge them.

What describes a tensor travels once: both sides keep it, and later calls send its number with the
values. It is kept by content, so that it does not matter which model it is of, or whether that
still exists; what has changed is sent as something new.
"""

import array
import pickle
import sys
import zlib

from .._holdings._groups import Groups
from .._holdings._layout import Placement
from .._holdings._record import Record, judge_of

_NONE = (1 << 64) - 1
_SAME_MAX = 1 << 16
_FIELDS = 6  # of a tensor's values: number, digest (2), NaN, Inf, first of these


class Sender:
    """What this rank has told each of the others."""

    def __init__(self, world_size: int):
        self._world_size = world_size
        self.forget()

    def forget(self):
        self._numbers: dict[tuple, int] = {}
        self._told = [0] * self._world_size  # descriptions
        self._groups: dict[Groups, int] = {}
        self._told_groups: list[set[int]] = [set() for _ in range(self._world_size)]

    def messages(self, records: dict[str, Record], unused=(), held=0) -> list[bytes]:
        """For each rank what it judges. unused: patterns that no name of this rank matched. held:
        how many tensors this rank has, if `records` are not of all of them."""
        if len(self._numbers) > 4 * max(held, len(records)) + 1000:  # of models that are gone
            self.forget()
        known = list(self._told)
        groups: list[list] = [[] for _ in known]
        described: list[list] = [[] for _ in known]
        values = [array.array("Q") for _ in known]
        patterns: list[list[str]] = [[] for _ in known]
        for name, record in records.items():
            to = judge_of(name, self._world_size)
            description = self._described(name, record, to, groups[to])
            number = self._numbers.get(description)
            if number is None:
                number = self._numbers[description] = self._told[to]
                self._told[to] += 1
                described[to].append(description)
            first = _NONE if record.first_non_finite is None else record.first_non_finite
            values[to].extend((number, *record.digest, record.nan, record.inf, first))
        for pattern in unused:
            patterns[judge_of(pattern, self._world_size)].append(pattern)
        parts = zip(known, groups, described, values, patterns, strict=True)
        return [
            pickle.dumps((told, new, deflated(tensors), numbers.tobytes(), names), protocol=5)
            for told, new, tensors, numbers, names in parts
        ]

    def _described(self, name, record, to, new_groups) -> tuple:
        groups = None
        if record.groups is not None:
            groups = self._groups.setdefault(record.groups, len(self._groups))
            if groups not in self._told_groups[to]:
                self._told_groups[to].add(groups)
                of = record.groups
                ranks = map(packed, (of.whole, of.alike, of.members))
                new_groups.append((groups, of.shown, of.named, *ranks))
        placements = tuple((p.kind, p.dim, p.split_factor) for p in record.placements)
        return (
            name, record.kind, record.dtype, tuple(record.shape), placements, groups, record.meta,
            record.unreadable, record.aliases, record.unique, record.numbers, record.drifts,
            record.accumulates, record.computed, record.partly, record.frozen, record.cached,
            record.pieced, record.followed, record.misfit, record.coverage,
        )  # fmt: skip


class Receiver:
    """What the others have told this rank. Equal parts of it are one object."""

    def __init__(self, world_size: int):
        self._world_size = world_size
        self.forget()

    def forget(self):
        self._described: list[list[tuple]] = [[] for _ in range(self._world_size)]
        self._groups: list[dict[int, Groups]] = [{} for _ in range(self._world_size)]
        self._same: dict = {}

    def read(self, source: int, message) -> tuple[dict[str, Record], list[str]]:
        """\\returns the records of rank `source` by name, and patterns that none of its names
        matched. \\raises LookupError if it counts on what this rank does not know."""
        told, groups, described, values, patterns = pickle.loads(message)
        if told == 0:  # it begins anew
            self._described[source], self._groups[source] = [], {}
        if len(self._same) > _SAME_MAX:
            self._same = {}
        known = self._described[source]
        if len(known) != told:
            raise LookupError(f"rank {source} has told {told} tensors, {len(known)} are known")
        for number, *said in groups:
            self._groups[source][number] = self._groups_of(tuple(said))
        for name, *description in inflated(described):
            description[:4] = self._one(tuple(description[:4]), self._common_of)
            groups_at = description[4]
            if groups_at is not None:
                description[4] = self._groups[source][groups_at]
            description[6:8] = map(sys.intern, description[6:8])
            known.append((sys.intern(name), tuple(description)))
        return self._records(known, values), patterns

    @staticmethod
    def _records(known, values) -> dict[str, Record]:
        numbers = array.array("Q", values)
        found = {}
        for at in range(0, len(numbers), _FIELDS):
            number, low, high, nan, inf, first = numbers[at : at + _FIELDS]
            name, description = known[number]
            first = None if first == _NONE else first
            found[name] = Record(*description, (low, high), nan, inf, first)
        return found

    def _one(self, key, make):
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = make(key)
        return found

    @staticmethod
    def _common_of(key):
        kind, dtype, shape, placements = key
        made = tuple(Placement(*each) for each in placements)
        return sys.intern(kind), sys.intern(dtype), shape, made

    def _groups_of(self, key) -> Groups:
        def made(key):
            shown, named, *ranks = key
            return Groups(*(self._one(each, unpacked) for each in ranks), shown, named)

        return self._one(key, made)


def deflated(said: list | dict) -> bytes:
    """Names and what describes tensors are much alike."""
    return zlib.compress(pickle.dumps(said, protocol=5), 1) if said else b""


def inflated(data):
    """What was deflated; if it was empty, ()."""
    return pickle.loads(zlib.decompress(data)) if data else ()


def packed(ranks) -> tuple[tuple[int, int, int], ...]:
    """Ranks as stretches (first, step, count): groups of a mesh are few of them."""
    found: list[list[int]] = []
    for rank in ranks:
        if found:
            first, step, count = found[-1]
            if count == 1 or rank == first + step * count:
                found[-1] = [first, rank - first if count == 1 else step, count + 1]
                continue
        found.append([rank, 1, 1])
    return tuple(map(tuple, found))


def unpacked(stretches) -> tuple[int, ...]:
    return tuple(first + step * i for first, step, count in stretches for i in range(count))
