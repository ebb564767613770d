"""What the ranks' verdicts on their shares of the names come to; each rank has the same in the end.

Where nothing is wrong a verdict is a few numbers. Otherwise findings of one cause are folded before
they travel, and of many causes the first ones travel, and how many there are.
"""

import collections
import dataclasses
import pickle

from .._holdings._options import count_of
from ._finding import Finding, Fold, Sides, fold, merged
from ._judge import Judgement, judge, with_sides
from ._wire import packed, unpacked

_FINDINGS_MAX = 1000  # that travel, of all ranks together
_REASONS_MAX = 20
_LOCATED = ("differs", "option", "part", "ambiguous")  # kinds of findings
_LOCATED_MAX = 3


@dataclasses.dataclass
class Verdict:
    """tensors: how many names there are. count: of the findings; some may be of causes that did not
    travel. uncompared: {reason: (how many, first name)}. unheard: patterns that no name of any rank
    matched. slowest: seconds of the rank that read its tensors longest."""

    tensors: int = 0
    comparisons: int = 0
    count: int = 0
    folds: list[Fold] = dataclasses.field(default_factory=list)
    uncompared: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    unheard: tuple[str, ...] = ()
    slowest: float = 0.0
    _same: dict = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def has_details(self) -> bool:
        return bool(self.folds or self.uncompared or self.unheard)

    def bounded(self, most: int) -> bytes:
        """What there is beside the numbers; b"" if nothing. most: how many findings are enough."""
        if not self.has_details:
            return b""
        kept, room = [], most - len(self.folds)
        for one in self.folds[:most]:  # one of each cause, and as many more as there is room for
            findings = one.findings[: 1 + max(0, room)]
            room -= len(findings) - 1
            plain = [_plain(each) for each in findings]
            kept.append((plain, one.count, one.names, packed(one.ranks)))
        reasons = sorted(self.uncompared.items(), key=lambda each: each[1][1])
        return pickle.dumps((kept, reasons[:_REASONS_MAX], self.unheard[:_REASONS_MAX]))

    def add(self, data: bytes):
        """Another rank's details."""
        kept, reasons, unheard = pickle.loads(data)
        self.folds += [
            Fold([self._finding(each) for each in same], count, names, self._ranks(ranks))
            for same, count, names, ranks in kept
        ]
        for reason, (number, first) in reasons:
            so_far, name = self.uncompared.get(reason, (0, first))
            self.uncompared[reason] = (so_far + number, min(name, first))
        self.unheard += unheard

    def join(self, other: "Verdict"):
        """What was found beside it, of the same names."""
        self.comparisons += other.comparisons
        self.count += other.count
        self.folds += other.folds
        for reason, (number, first) in other.uncompared.items():
            so_far, name = self.uncompared.get(reason, (0, first))
            self.uncompared[reason] = (so_far + number, min(name, first))

    def _ranks(self, stretches) -> tuple[int, ...]:
        """Equal ones are one object: a thousand findings may each be on a thousand ranks."""
        if stretches not in self._same:
            self._same[stretches] = unpacked(stretches)
        return self._same[stretches]

    def _finding(self, plain) -> Finding:
        kind, tensor, ranks, what, index, sides = plain
        if sides is not None:
            one, other, *rest = sides
            sides = Sides(self._ranks(one), self._ranks(other), *rest)
        return Finding(kind, tensor, self._ranks(ranks), what, index, sides)


def of_share(received, read, heard=None) -> Verdict:
    """received: each rank's message for this one. read: Receiver.read. heard: a list, to which each
    rank's records are added."""
    records, unmatched = [] if heard is None else heard, collections.Counter()
    for source, message in enumerate(received):
        of_rank, patterns = read(source, message)
        records.append(of_rank)
        unmatched.update(patterns)
    judgement = judge(records)
    return Verdict(
        tensors=count_of({name: each for own in records for name, each in own.items()}.values()),
        comparisons=judgement.comparisons,
        count=len(judgement.findings),
        folds=_folded(judgement, records),
        uncompared=judgement.counted(),
        unheard=tuple(sorted(p for p, ranks in unmatched.items() if ranks == len(records))),
    )


def settled(own: Verdict | None, transport, seconds=0.0) -> Verdict | None:
    """All ranks' verdicts in one; None if one of them, for which own is None, came to none.
    seconds: that this rank took to read its tensors."""
    numbers = [own.tensors, own.comparisons, own.count] if own else [-1, 0, 0]
    details = int(bool(own and own.has_details))
    everybody = transport.everybody([*numbers, details, int(seconds * 1e9)])
    if any(each[0] < 0 for each in everybody):
        return None
    *sums, tellers, _ = (sum(column) for column in zip(*everybody, strict=True))
    whole = Verdict(*sums, slowest=max(each[-1] for each in everybody) / 1e9)
    if tellers:
        finders = sum(1 for each in everybody if each[2])
        for data in transport.of_some(own.bounded(-(-_FINDINGS_MAX // max(1, finders)))).values():
            whole.add(data)
        whole.folds = merged(whole.folds)
        whole.uncompared = dict(sorted(whole.uncompared.items(), key=lambda each: each[1][1]))
    return whole


def _folded(judgement: Judgement, records) -> list[Fold]:
    """With where to look for the first elements, of as many as may be among the first of all."""
    folds = fold(judgement.findings)
    differing = [one for one in folds if one.findings[0].kind in _LOCATED]
    for one in differing[:_LOCATED_MAX]:
        one.findings[0] = with_sides(one.findings[0], records)
    return folds


def to_locate(folds) -> list[Fold]:
    return [one for one in folds if one.findings[0].sides][:_LOCATED_MAX]


def _plain(finding: Finding) -> tuple:
    sides = finding.sides
    if sides is not None:
        sides = (packed(sides.one), packed(sides.other), sides.shape, sides.element_bytes,
                 sides.others, sides.moved)  # fmt: skip
    return (
        finding.kind, finding.tensor, packed(finding.ranks), finding.what, finding.index, sides,
    )  # fmt: skip
