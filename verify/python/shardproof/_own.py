"""The records of this rank: what it has of every tensor, digested in place."""

import dataclasses
import fnmatch

from . import _digest, _layout, _model, _optimizer
from ._groups import Groups
from ._holding import Holding, alias_groups
from ._record import Record


def tensors_of(model, optimizer, ignore, said) -> dict[str, Holding]:
    read = _model.read(model, said)
    of_optimizer = _optimizer.optimizer_tensors(read, optimizer, said.rank)
    state = [dataclasses.replace(held, name=f"optimizer.{held.name}") for held in of_optimizer]
    return {
        held.name: held
        for held in [*read.tensors, *state]
        if not any(fnmatch.fnmatchcase(held.name, pattern) for pattern in ignore)
    }


def records_of(tensors: dict[str, Holding], finite, wanted=lambda name: True) -> dict[str, Record]:
    """finite: whether values must be, or by pattern of names. wanted: which names are looked at."""
    groups = alias_groups(list(tensors.values()))
    first_of = {number: name for name, number in reversed(groups.items())}
    # One object for the same groups: what is said of them is looked at once.
    known: dict[Groups | None, Groups | None] = {}
    for held in tensors.values():
        held.groups = known.setdefault(held.groups, held.groups)
    return {
        name: _record(held, first_of.get(groups.get(name), ""), finite)
        for name, held in tensors.items()
        if wanted(name)
    }


def _record(held: Holding, shared_with: str, finite) -> Record:
    common = dict(
        kind=held.kind, dtype=str(held.dtype), shape=tuple(held.shape),
        placements=tuple(held.placements), groups=held.groups, meta=held.is_meta,
        unreadable=held.unreadable or ("partial values" if held.partial else ""),
        aliases=shared_with, unique=held.unique,
        numbers=held.is_of_numbers(finite), drifts=held.drifts, misfit=held.misfit,
    )  # fmt: skip
    if held.is_meta or held.local is None or common["unreadable"]:
        return Record(**common)
    owned = _layout.element_count(held.runs)
    if owned != held.local.numel():
        what = f"its placement assigns it {owned} elements, but it holds {held.local.numel()}"
        return Record(**{**common, "misfit": common["misfit"] or what})
    version = _version(held.local)
    summary = _digest.digest_runs(held.local, held.runs)
    if _version(held.local) != version:
        return Record(**{**common, "unreadable": "it was changed while it was read"})
    bad = common["numbers"] and summary.nan_count + summary.inf_count
    return Record(
        **common,
        coverage=_digest.coverage(held.runs, held.local.element_size()),
        digest=summary.digest,
        nan=summary.nan_count,
        inf=summary.inf_count,
        first_non_finite=_digest.first_non_finite(held.local, held.runs) if bad else None,
    )


def _version(tensor) -> int:
    """How often it was changed in place, as far as torch knows."""
    return 0 if tensor.is_inference() else tensor._version
