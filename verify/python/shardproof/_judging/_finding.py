"""What is wrong: findings, and those of one cause folded into one."""

import dataclasses
import itertools
import re

from .._printable import printable

_RANKS_SHOWN = 16


@dataclasses.dataclass(frozen=True)
class Sides:
    """Where to look for the first element that differs: `one` are the ranks whose parts make up
    what is odd, `other` those that make up what it is held against."""

    one: tuple[int, ...]
    other: tuple[int, ...]
    shape: tuple[int, ...]
    element_bytes: int
    others: str  # what the other side is called
    # Of a part whose shape is not that of all: the dim that is cut, where the part begins along it
    # as its shape has it and as it is, and the shape of the whole.
    moved: tuple[int, int, int, tuple[int, ...]] | None = None


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ranks: those that differ from the majority."""

    kind: str
    tensor: str
    ranks: tuple[int, ...]
    what: str
    index: int | None = None
    sides: Sides | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self):
        on = f" on {ranks_text(self.ranks)}" if self.ranks else ""
        return printable(f"{self.tensor}{on}: {self.what}")

    @property
    def cause(self) -> tuple:
        """The same of all that are folded: of one kind, on the same ranks, of names that differ in
        numbers only. NaN is found on each rank by itself."""
        ranks = () if self.kind == "non-finite" else self.ranks
        return self.kind, pattern_of(self.tensor), ranks


@dataclasses.dataclass
class Fold:
    """Findings of one cause. findings: the first ones, in the order of names; count: how many there
    are; names: of how many tensors."""

    findings: list[Finding]
    count: int
    names: int
    ranks: tuple[int, ...]

    def __str__(self):
        first = self.findings[0]
        more = []
        if self.names > 1:
            number = self.names - 1
            named = f"named {printable(pattern_of(first.tensor))}"
            more.append(f"{number} more tensor{'s' if number > 1 else ''} {named}")
        if self.ranks != first.ranks:
            more.append(ranks_text(tuple(rank for rank in self.ranks if rank not in first.ranks)))
        return f"{first}" + (f"; the same holds for {' and '.join(more)}" if more else "")


def fold(findings) -> list[Fold]:
    """In the order of the first name of each."""
    by_cause: dict[tuple, list[Finding]] = {}
    for finding in sorted(findings, key=lambda each: each.tensor):
        by_cause.setdefault(finding.cause, []).append(finding)
    return [
        Fold(same, len(same), len({each.tensor for each in same}), _ranks(same))
        for same in by_cause.values()
    ]


def merged(folds) -> list[Fold]:
    """Those of several judges, each of which has names of its own."""
    by_cause: dict[tuple, list[Fold]] = {}
    for one in folds:
        by_cause.setdefault(one.findings[0].cause, []).append(one)
    joined = [
        Fold(
            sorted(itertools.chain(*(one.findings for one in same)), key=lambda each: each.tensor),
            sum(one.count for one in same),
            sum(one.names for one in same),
            tuple(sorted(set(itertools.chain(*(one.ranks for one in same))))),
        )
        for same in by_cause.values()
    ]
    return sorted(joined, key=lambda one: one.findings[0].tensor)


def pattern_of(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def ranks_text(ranks) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_listed(ranks)}"


def bracketed(ranks) -> str:
    return f"[{_listed(ranks)}]"


def _listed(ranks) -> str:
    """1, 2, 3; of many the stretches: 0 to 99, 200 to 299."""
    if len(ranks) <= _RANKS_SHOWN:
        return ", ".join(map(str, ranks))
    texts = _stretches(ranks)
    if len(texts) > _RANKS_SHOWN:
        return ", ".join(texts[:_RANKS_SHOWN]) + f" and others, {len(ranks)} in all"
    return ", ".join(texts)


def stretches_text(ranks) -> str:
    """0 to 3, 8."""
    return ", ".join(_stretches(ranks))


def _stretches(ranks) -> list[str]:
    stretches: list[list[int]] = []
    for rank in ranks:
        if stretches and stretches[-1][1] + 1 == rank:
            stretches[-1][1] = rank
        else:
            stretches.append([rank, rank])
    return [f"{low} to {high}" if low < high else f"{low}" for low, high in stretches]


def _ranks(findings) -> tuple[int, ...]:
    return tuple(sorted({rank for each in findings for rank in each.ranks}))
