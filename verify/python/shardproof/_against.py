"""What a live model holds, against what a checkpoint of it has on disk.

Each rank reads the bytes that it holds itself, and digests them as it did its memory. The ranks
then tell each other what they found, so that all come to the same outcome. Of replicas one reads:
that they are equal is what the rest of `check` is about.
"""

import dataclasses
import hashlib
import os
import zlib

import torch

from . import _digest, _layout, _stored, _stored_names, _whole
from ._finding import Finding, fold
from ._holding import Holding
from ._layout import Run
from ._names import without_wrappers
from ._record import Record
from ._stored import Checkpoint, Stored, Unreadable
from ._stored_read import read_runs

_LOCATED_MAX = 3  # of a rank's tensors that differ: whose bytes are read again
_PREFIX = "optimizer."
ABSENT = "not in the checkpoint"
EXTRA = "in the checkpoint, and not in what was given"


@dataclasses.dataclass
class Held:
    """What all ranks found. said: what was compared with what, a line."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    comparisons: int = 0
    uncompared: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    said: str = ""

    def add_to(self, verdict):
        verdict.comparisons += self.comparisons
        verdict.count += len(self.findings)
        verdict.folds += fold(self.findings)
        for reason, names in self.uncompared.items():
            number, first = verdict.uncompared.get(reason, (0, names[0]))
            verdict.uncompared[reason] = (number + len(names), first)

    def leave(self, name: str, reason: str):
        names = self.uncompared.setdefault(reason, [])
        if name not in names:
            names.append(name)


@dataclasses.dataclass
class _Report:
    """What one rank found; travels. findings: (name, ranks, what, index), parts: of a seal."""

    error: str = ""
    said: str = ""
    compared: list[str] = dataclasses.field(default_factory=list)
    findings: list[tuple] = dataclasses.field(default_factory=list)
    left: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    parts: dict = dataclasses.field(default_factory=dict)


def hold(
    path, tensors: dict[str, Holding], records: dict[str, Record], transport, prefix=None
) -> Held:
    """Every rank calls it. tensors, records: of this rank, by name; what has no record is not held
    against the checkpoint. prefix: of the model's names in
    the checkpoint; None: the one under which most match. Without a path nothing is done.

    \\raises RuntimeError on all ranks alike if one cannot read the checkpoint, or nothing of it
    could be compared.
    """
    if path is None:
        return Held()
    tensors = {name: tensors[name] for name in records}
    names = _names_of_all(tensors, transport)
    report = _Report()
    cause = None
    try:
        report = _look(path, tensors, records, names, transport.rank, prefix)
    except Exception as error:  # whatever it is, the other ranks wait to be told
        known = isinstance(error, Unreadable | _stored_names.Ambiguous)
        report.error = str(error) if known else f"{path}: {type(error).__name__}: {error}"
        cause = error
    reports = transport.objects(report)
    for rank, each in enumerate(reports):
        if each.error:
            raise RuntimeError(
                f"shardproof.check: rank {rank} cannot read the checkpoint: {each.error}"
            ) from cause
    held = _merged(reports)
    if not held.comparisons:
        raise RuntimeError(
            f"shardproof.check: nothing was compared with {path}: no tensor of the model is in it"
        )
    return held


def _names_of_all(tensors, transport) -> list[str]:
    """The names that any rank has. They travel only if ranks have others."""
    own = sorted(tensors)
    sums = transport.objects(hashlib.sha256("\n".join(own).encode()).hexdigest())
    if len(set(sums)) == 1:
        return own
    return sorted({name for names in transport.objects(own) for name in names})


def _look(path, tensors, records, names, rank, prefix) -> _Report:
    checkpoint = _stored.open_stored(path)
    if rank == 0:
        checkpoint.check_complete()
    pairs, said, extra = _paired(checkpoint, names, prefix)
    report = _Report(said=f"{os.fspath(path)} ({checkpoint.format}){said}")
    if rank == 0:
        report.left += [(name, EXTRA) for name in extra]
    absent = [name for name in tensors if name not in pairs]
    tied = _tied_to_compared(tensors, records, pairs)
    report.left += [
        (name, ABSENT) for name in absent if tensors[name].persistent and name not in tied
    ]
    located = 0
    for name, held in tensors.items():
        if name not in pairs:
            continue
        stored = checkpoint.tensors[pairs[name]]
        if not _is_comparable(held, stored, records[name], report, rank):
            continue
        ranks = _readers(held, rank)
        if stored.digest is not None:
            report.parts[name] = _whole.part_of(held, records[name])
            report.compared.append(name)
        elif ranks[zlib.crc32(name.encode()) % len(ranks)] == rank:
            report.compared.append(name)
            locate = located < _LOCATED_MAX
            located += _compare(held, records[name], stored, report, ranks, locate)
    if checkpoint.format == "seal":
        report.parts = {"own": report.parts, "sealed": _sealed(checkpoint, pairs, rank)}
    return report


def _sealed(checkpoint: Checkpoint, pairs, rank) -> dict:
    """Digests of the seal, by the model's names; one rank's are enough."""
    return {name: checkpoint.tensors[pairs[name]].digest for name in pairs} if rank == 0 else {}


def _paired(checkpoint: Checkpoint, names, prefix):
    """\\returns ({the model's name: the checkpoint's}, under which prefixes, names left over)."""
    by_name: dict[str, str] = {}
    for name in checkpoint.tensors:
        by_name.setdefault(without_wrappers(name), name)
    by_name |= {name: name for name in checkpoint.tensors}
    state = {name.removeprefix(_PREFIX): name for name in names if name.startswith(_PREFIX)}
    model = {name: name for name in names if not name.startswith(_PREFIX)}
    pairs, said = {}, []
    for what, wanted, below in (("model", model, prefix), ("optimizer", state, None)):
        if below is None:
            below = _stored_names.prefix_of(wanted, by_name, checkpoint.path)
        if below is None:
            continue
        found = {wanted[name]: by_name[below + name] for name in wanted if below + name in by_name}
        pairs |= found
        said.append(f"{len(found)} names of the {what} below {below!r}")
    taken = set(pairs.values())
    extra = sorted(name for name in checkpoint.tensors if name not in taken)
    return pairs, ": " + ", ".join(said) if said else "", extra


def _tied_to_compared(tensors, records, pairs) -> set[str]:
    """Names without a partner that share their memory with one that has: a checkpoint may keep one
    name of a tied tensor."""
    found = {_memory_of(tensors[name], records[name]) for name in tensors if name in pairs}
    owners = {id(tensors[name].owner) for name in tensors if name in pairs}
    return {
        name
        for name, held in tensors.items()
        if id(held.owner) in owners or _memory_of(held, records[name]) in found
    }


def _memory_of(held: Holding, record: Record):
    return record.aliases or held.name, tuple(held.shape)


def _is_comparable(held, stored: Stored, record: Record, report: _Report, rank) -> bool:
    if record.meta or record.misfit:
        return False  # a finding already
    if record.unreadable or (held.runs and record.coverage == (0, 0)):
        report.left.append((held.name, record.unreadable or "there is nothing of it here"))
        return False
    if stored.dtype is None:
        report.left.append((held.name, f"the checkpoint's dtype {stored.dtype_name} is not known"))
        return False
    if held.dtype == stored.dtype and tuple(held.shape) == stored.shape:
        return True
    if held.groups is None and held.dtype == stored.dtype:
        report.left.append((held.name, "its group of ranks was not stated"))
        return False
    what = (
        f"it is a {held.dtype} {list(held.shape)}, in the checkpoint a {stored.dtype_name} "
        f"{list(stored.shape)}"
    )
    report.compared.append(held.name)
    report.findings.append((held.name, (rank,), what, None))
    return False


def _readers(held: Holding, rank: int) -> tuple[int, ...]:
    """The ranks that have the same part as this one, if they surely do: one of them reads it."""
    if held.groups is None:
        return (rank,)
    cut = bool(held.placements) and all(
        placement.kind in ("shard", "replicate", "strided_shard") for placement in held.placements
    )
    whole = not held.placements and held.kind != "optimizer" and held.groups.whole == (rank,)
    return held.groups.alike if cut or whole else (rank,)


def _compare(held, record: Record, stored: Stored, report: _Report, ranks, locate: bool) -> bool:
    """ranks: those that have the same. \\returns whether its values differ."""
    size = held.dtype.itemsize
    digest, count = (0, 0), 0
    for data, filed, _ in read_runs(stored, held.runs, size):
        digest = _digest.add(digest, _digest.digest_bytes(data, [filed]))
        count += filed.length * filed.count // size
    owned = _layout.element_count(held.runs)
    if count != owned:
        what = f"its chunks in the checkpoint have {count} of {owned} elements of this rank"
        report.findings.append((held.name, ranks, what, None))
        return False
    if digest == record.digest:
        return False
    what, index = "its values differ from those in the checkpoint", None
    if locate and held.local is not None:
        what, index = _first_difference(held, stored)
    report.findings.append((held.name, ranks, what, index))
    return True


def _first_difference(held: Holding, stored: Stored) -> tuple[str, int | None]:
    """Reads the same again, beside the memory."""
    size = held.dtype.itemsize
    flat = held.local.detach().contiguous().reshape(-1).view(torch.uint8)
    first, count = None, 0
    for data, filed, own in read_runs(stored, held.runs, size):
        seen, theirs = _bytes(flat, own), _bytes(data, filed)
        differs = (seen != theirs).view(filed.count, -1, size).any(-1)
        rows = differs.nonzero()
        count += len(rows)
        if not len(rows):
            continue
        row, column = rows[0].tolist()
        index = (filed.start + row * filed.stride) // size + column
        if first is None or index < first[0]:
            at = slice(column * size, column * size + size)
            first = index, seen[row, at].clone(), theirs[row, at].clone()
    if first is None:
        return "its values differed from those in the checkpoint, and no longer do: it is being " \
               "written", None  # fmt: skip
    index, *values = first
    one, other = (_value_text(value, held.dtype) for value in values)
    of = _layout.element_count(held.runs)
    what = f"element {index} is {one}, in the checkpoint {other}; {count} of {of} differ"
    return what, index


def _bytes(memory: torch.Tensor, run: Run) -> torch.Tensor:
    """[count, length], on the CPU."""
    strides = (run.local_stride if run.count > 1 else run.length, 1)
    at = memory.storage_offset() + run.local_start  # memory may be a slice of more
    return torch.as_strided(memory, (run.count, run.length), strides, at).cpu()


def _value_text(data: torch.Tensor, dtype) -> str:
    """The bits, and the number."""
    bits = bytes(data.tolist())
    number = torch.frombuffer(bytearray(bits), dtype=torch.uint8).view(dtype)[0].item()
    return f"0x{bits[::-1].hex()} ({number})"


def _merged(reports: list[_Report]) -> Held:
    held = Held(said=reports[0].said)
    found: dict[str, list] = {}
    for report in reports:
        held.comparisons += len(report.compared)
        for name, *finding in report.findings:
            found.setdefault(name, []).append(finding)
        for name, reason in report.left:
            held.leave(name, reason)
    for name, each in sorted(found.items()):
        ranks = tuple(sorted({rank for of_part, _, _ in each for rank in of_part}))
        # The element that comes first, if a rank has looked for it.
        _, what, index = min(each, key=lambda one: (one[2] is None, one[2] or 0, one[0]))
        held.findings.append(Finding("disk", name, ranks, what, index))
    if reports[0].parts:
        _hold_seal(reports, held)
    return held


def _hold_seal(reports, held: Held):
    sealed = reports[0].parts["sealed"]
    wholes = _whole.wholes([report.parts["own"] for report in reports])
    for name, whole in wholes.items():
        if isinstance(whole, str):
            held.leave(name, whole)
        elif whole.digest != sealed[name]:
            what = (
                f"its digest is {_digest.hex_of(whole.digest)}, in the seal "
                f"{_digest.hex_of(sealed[name])}"
            )
            held.findings.append(Finding("disk", name, whole.ranks, what))
