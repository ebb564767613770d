"""The records of this rank: what it has of every tensor, digested in place."""

import dataclasses

import torch

from .._digests import _digest, _together
from .._holdings import _layout, _model, _optimizer, _options
from .._holdings._groups import Groups
from .._holdings._holding import Holding, alias_groups
from .._holdings._names import not_ignored
from .._holdings._options import TOLD
from .._holdings._record import Record, parameter_of
from . import _blocks

CHANGED = "it was changed while it was read"


def tensors_of(model, optimizer, ignore, said, counters=False) -> dict[str, Holding]:
    """counters: whole numbers among an optimizer's state, too, and what it was told."""
    read = _model.read(model, said)
    _optimizer.look_at_copies(read, optimizer, said.rank)
    of_optimizer = _optimizer.optimizer_tensors(read, optimizer, said.rank, counters)
    state = [dataclasses.replace(held, name=f"optimizer.{held.name}") for held in of_optimizer]
    if not _optimizer.is_cut_by_package(optimizer):
        _say_of_what_there_is_none(read.tensors, state, optimizer is None)
    told = _options.held_of(read, optimizer, said) if counters else {}
    named = {f"optimizer.{name}": held for name, held in told.items()}
    named.update((held.name, held) for held in [*read.tensors, *state])
    return not_ignored(named, ignore)


def _say_of_what_there_is_none(tensors, state, nothing_said):
    """Optimizers that divide the parameters among the ranks have state of some of them, and a rank
    that has none of them has no optimizer."""
    having = {parameter_of(held.name) for held in state}
    without = [
        held for held in tensors
        if held.kind == "parameter" and held.requires_grad and held.name not in having
    ]  # fmt: skip
    if without and (having or nothing_said):
        for held in [*without, *state]:
            held.partly = True


def records_of(tensors: dict[str, Holding], finite) -> dict[str, Record]:
    """finite: whether values must be, or by pattern of names."""
    reading = Reading(tensors, finite)
    reading.read()
    return reading.records


class Reading:
    """What this rank has of each tensor: what describes it at once, its values by `read`.

    records: by name, whole once all was read. What is changed from when this was made until it was
    read is not compared: ranks would have it of different moments. Writes that torch does not
    count, as those through `.data` and by libraries that take a tensor's address, are not seen.
    blocks: by name, of tensors that have several. stepped: set once an optimizer has begun to
    change them, of which fused ones are not counted.
    """

    def __init__(
        self, tensors: dict[str, Holding], finite, wanted=lambda name: True, block_bytes=0
    ):
        """wanted: which names are looked at. block_bytes: if it is not 0, blocks of that size are
        digested apart."""
        groups = alias_groups([each for each in tensors.values() if _can_be_tied(each)])
        first_of = {number: name for name, number in reversed(groups.items())}
        # One object for the same groups: what is said of them is looked at once.
        known: dict[Groups | None, Groups | None] = {}
        for held in tensors.values():
            held.groups = known.setdefault(held.groups, held.groups)
        self.stepped = False
        self.blocks: dict[str, _blocks.Held] = {}
        self._block_bytes = block_bytes
        self.records: dict[str, Record] = {}
        told: dict[int, Record] = {}
        self._left: dict[str, tuple[Holding, int]] = {}  # to be read, and its version
        for name, held in tensors.items():
            if not wanted(name):
                continue
            if held.kind in TOLD:  # little, and a copy already
                self.records[name] = told.get(id(held)) or told.setdefault(id(held), _told(held))
            else:
                record = _described(held, first_of.get(groups.get(name), ""), finite)
                self.records[name] = record
                if not (held.is_meta or held.local is None or record.unreadable or record.misfit):
                    self._left[name] = (held, version_of(held))

    def leave(self, names):
        """Their values are looked at elsewhere, under a map."""
        for name in names:
            if self._left.pop(name, None):
                self.records[name].followed = True

    def read(self, wanted=lambda held: True, goes_on=lambda: True):
        """wanted: says of a holding whether it is read now. goes_on: asked before each tensor."""
        together: list[str] = []  # in one call
        nbytes = 0
        for name, (held, _) in list(self._left.items()):
            if not wanted(held):
                continue
            if not goes_on():
                return
            blocks = _blocks.count_in(held, self._block_bytes)
            if blocks or not _together.takes(held.local):
                self._read([name], blocks)
                continue
            together.append(name)
            nbytes += held.local.nbytes
            if len(together) == _together.MAX or nbytes >= _together.BYTES:
                self._read(together)
                together, nbytes = [], 0
        self._read(together)

    def _read(self, names: list[str], blocks=0):
        """blocks: how many the one tensor has that are digested apart."""
        names = [name for name in names if not self._is_changed(name)]
        holdings = [self._left[name][0] for name in names]
        if blocks and names:
            held = holdings[0]
            summary, self.blocks[names[0]] = _blocks.summarised(
                held.local, held.runs, self._block_bytes, blocks
            )
            summaries = [summary]
        else:
            summaries = _together.digest_all([(held.local, held.runs) for held in holdings])
        for name, held, summary in zip(names, holdings, summaries, strict=True):
            _add_values(self.records[name], held, summary)
            if not self._is_changed(name):
                del self._left[name]

    def _is_changed(self, name) -> bool:
        """Whether it is another than when this was made: then nothing is left to be read of it."""
        held, version = self._left[name]
        if not self.stepped and version_of(held) == version:
            return False
        self.records[name].unreadable = CHANGED
        del self._left[name]
        return True


def _can_be_tied(held: Holding) -> bool:
    """A single number of an optimizer's may serve many parameters, and others on each rank: one
    counter of steps for all that it has in a flat tensor."""
    return held.kind not in TOLD and not (held.kind == "optimizer" and held.shape in ((), (1,)))


def _told(held: Holding) -> Record:
    summary = _digest.digest_runs(held.local, held.runs)
    record = _described(held, "", True)
    _add_values(record, held, summary)
    return record


def _add_values(record: Record, held: Holding, summary: _digest.Summary):
    inf = 0 if summary.inf_count and held.may_be_infinite() else summary.inf_count
    bad = record.numbers and summary.nan_count + inf
    ones = summary.coverage or _digest.coverage(held.runs, held.local.element_size())
    record.coverage, record.digest = ones, summary.digest
    record.nan, record.inf = summary.nan_count, inf
    record.first_non_finite = _digest.first_non_finite(held.local, held.runs) if bad else None


def _described(held: Holding, shared_with: str, finite) -> Record:
    misfit, unreadable = held.misfit, held.unreadable or ("partial values" if held.partial else "")
    if not (held.is_meta or held.local is None or unreadable):
        owned = _layout.element_count(held.runs)
        if owned != held.local.numel():
            misfit = misfit or (
                f"its placement gives this rank {owned} elements, but it holds {held.local.numel()}"
            )
    return Record(
        kind=held.kind, dtype=str(held.dtype), shape=tuple(held.shape),
        placements=tuple(held.placements), groups=held.groups, meta=held.is_meta,
        unreadable=unreadable, aliases=shared_with, unique=held.unique,
        numbers=held.is_of_numbers(finite), drifts=held.drifts,
        accumulates=held.accumulates, computed=held.computed, partly=held.partly,
        frozen=held.kind == "parameter" and not held.requires_grad,
        cached=held.kind == "buffer" and not held.persistent, misfit=misfit,
    )  # fmt: skip


def version_of(held: Holding) -> int:
    """How often it was changed in place, as far as torch knows: its memory, and the parameter that
    it is, which may be a view with a count of its own."""
    if type(held.owner) in (torch.Tensor, torch.nn.Parameter):
        return _count(held.local) + _count(held.owner)
    if not isinstance(held.owner, torch.Tensor):
        return _count(held.local)
    with torch._C.DisableTorchFunctionSubclass():
        return _count(held.local) + _count(held.owner)


def _count(tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
