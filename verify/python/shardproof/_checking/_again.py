"""A check against the next manifest of what was right with the one before.

Names, shapes, groups and the map are then what they were, so nothing is described anew: each rank
reads its memory in one call, sends digests alone, and all that was equal must be equal again. If
anything is not, or is not known to be as it was, the ranks look at everything as if for the first
time, and only that says what is wrong.
"""

import array
import contextlib
import ctypes
import dataclasses

import torch

from .._against import _map_plan
from .._against._against import Compared, Held, Source
from .._digests import _digest
from .._holdings import _layout, _unchanged
from .._holdings._record import Record, judge_of
from .._holdings._unchanged import Look, Unplain
from .._judging import _own, _whole
from .._judging._arguments import frozen, numbered
from .._judging._equalities import Equalities
from .._judging._judge import total
from .._judging._outcome import Outcome, conclude
from .._judging._rows import Builder
from .._judging._sent import Sent
from .._judging._verdict import Verdict
from .._stored._manifest import Manifest


@dataclasses.dataclass
class Again:
    """What a check that found nothing wrong leaves behind. asked, said, layout: of its arguments,
    the model and the manifest; it serves as long as these are the same. number: the same on all
    ranks, and of this check alone. under: below which names the manifest has the tensors."""

    asked: tuple
    said: list
    layout: list
    sent: Sent
    judged: "_Judged"
    outcome: Outcome
    verdict: Verdict
    under: str
    number: int = 0

    def is_of(self, asked: tuple, look: Look, manifest: Manifest) -> bool:
        return self.asked == asked and self.said == look.said and self.layout == manifest.layout


def outcome_of(asked, turns, transport) -> Outcome | None:
    """Every rank calls it. \\returns None if the ranks must look at everything."""
    source, again = asked.against, turns.again
    if not _may_be(source):
        return None
    look, number = None, 0
    if again is not None and not _goes_back(source):
        look, arguments = _look(asked)
        is_of = look is not None and again.is_of(arguments, look, source.path)
        number = again.number if is_of else 0
    shown = int(source.path.digest[:15], 16) if number else 0
    said = transport.everybody([number, shown])
    if not number or any(each != [number, shown] for each in said):
        return None
    messages = None
    with contextlib.suppress(RuntimeError):  # where everything is looked at it is told
        messages = again.sent.messages(look)
    received = transport.exchange(messages)
    if received is None:
        return None
    digests = _digest.digests_of(b"".join(received))
    sums = again.judged.equalities.sums(digests, source.path.digests)
    if not all(right for (right,) in transport.everybody([int(sums is not None)])):
        return None
    source.synced.add(source.path, _Parts(again.judged.places, digests))
    conclude(again.verdict, asked.strict, transport, dict)
    return dataclasses.replace(again.outcome, checkpoint=f"a {source.path.title}{again.under}")


def keep(asked, turns, transport, own, heard, outcome: Outcome, verdict: Verdict, disk: Held):
    """Every rank calls it, after a check of everything that found nothing wrong."""
    source = asked.against
    if not _may_be(source):
        return
    again = None
    try:
        look, arguments = _look(asked)
        if look is not None and disk.compared is not None and not _changed(own, disk.compared):
            again = Again(
                arguments, look.said, source.path.layout,
                *_tables(look, own, heard, disk.compared, source.path, transport),
                outcome, Verdict(uncompared=verdict.uncompared),
                disk.said.removeprefix(f"a {source.path.title}"),
            )  # fmt: skip
    except Unplain:
        pass
    turns.again = numbered(again, transport)


def _may_be(source: Source) -> bool:
    return isinstance(source.path, Manifest) and not source.in_turns


def _goes_back(source: Source) -> bool:
    newest, version = source.synced.newest_version(), source.path.version
    return newest is not None and version is not None and version < newest


def _look(asked) -> tuple[Look | None, tuple]:
    """None: of a model or arguments that are not known to be as they were."""
    model, optimizer = asked.subject()
    try:
        if optimizer is None:
            return _unchanged.look_at(model), _arguments(asked)
    except (Unplain, OSError, *_unchanged.RAISED):
        pass
    return None, ()


def _changed(own, compared: Compared) -> bool:
    records = [*own.records.values(), *compared.own.records.values()]
    return any(each.unreadable == _own.CHANGED for each in records)


# ---- Arguments -----------------------------------------------------------------------------------


def _arguments(asked) -> tuple:
    """By value, so that what a caller changes in place is seen."""
    source = asked.against
    map_ = None if source.map is None else _map_plan.said_of(source.map, source.config)
    return frozen((
        asked.ignore, asked.finite, asked.strict, source.prefix, map_, asked.said,
    ))  # fmt: skip


# ---- What travels --------------------------------------------------------------------------------


def _has_values(record: Record) -> bool:
    is_elsewhere = record.followed and not record.pieced
    return not (record.meta or record.unreadable or record.misfit or is_elsewhere)


def _is_heard(heard, compared: Compared) -> bool:
    """Whether records were sent once: what was compared is what the ranks compare with each
    other."""
    return compared.held is heard


@dataclasses.dataclass
class _Judged:
    """What this rank asks of what all of them send it. places: of names of the manifest, by rank,
    the numbers of the digests."""

    equalities: Equalities
    places: dict[str, dict[int, int]]


class _Parts:
    """As Synced.parts, of digests that are asked for only if something is wrong."""

    def __init__(self, places: dict[str, dict[int, int]], digests: torch.Tensor):
        self._places, self._digests = places, digests

    def get(self, name: str, default):
        of_name = self._places.get(name)
        if of_name is None:
            return default
        return {
            rank: tuple(array.array("Q", ctypes.string_at(self._digests[at].data_ptr(), 16)))
            for rank, at in of_name.items()
        }


def _tables(look: Look, own, heard, compared: Compared, manifest, transport):
    """\\returns (Sent, _Judged). \\raises Unplain."""
    sent = _sent(look, own, compared, _is_heard(heard, compared), transport.world_size)
    return sent, _judged(heard, compared, manifest, transport)


def _sent(look: Look, own, compared: Compared, is_heard: bool, world_size: int) -> Sent:
    builder, mapped = Builder(look), compared.own
    rows: dict[int, int] = {}  # by the id of a record
    said: list[list[list[int]]] = [[] for _ in range(world_size)]
    for name, record in own.records.items():
        if _has_values(record):
            held = own.tensors[name]
            rows[id(record)] = builder.add(
                held, held.local, held.runs, record.digest, record.numbers
            )
            said[judge_of(name, world_size)].append([rows[id(record)]])
    for name, record in mapped.records.items() if not is_heard else ():
        if _has_values(record):
            parts = mapped.parts.get(name)
            of_name = [rows[id(record)]] if parts is None else [
                builder.add(part.held, piece.data, piece.runs, summary.digest, part.record.numbers)
                for part in parts
                for piece, summary in zip(part.pieces, part.summaries, strict=True)
            ]  # fmt: skip
            said[judge_of(name, world_size)].append(of_name)
    padded = {}
    for held, data in mapped.padded:
        runs = _layout.local_runs(data.shape)
        digest = _digest.digest_runs(data, runs).digest
        padded[builder.add(held, data, runs, digest)] = digest
    made, places = builder.rows()
    placed = [[[places[row] for row in each] for each in of_judge] for of_judge in said]
    return Sent(made, placed, {places[row]: each for row, each in padded.items()})


def _judged(heard, compared: Compared, manifest: Manifest, transport) -> _Judged:
    equalities = Equalities()
    numbers = {id(each): at for at, each in enumerate(manifest.tensors.values())}
    of_model, of_manifest = [], []
    count = 0
    for rank, records in enumerate(heard):
        for found, source in ((of_model, records), (of_manifest, compared.held[rank])):
            if found is of_manifest and _is_heard(heard, compared):
                found.append(of_model[rank])
                continue
            places = [name for name, record in source.items() if _has_values(record)]
            found.append({name: count + at for at, name in enumerate(places)})
            count += len(places)
    for name in {name for places in of_model for name in places}:
        _add_model(equalities, name, heard, of_model)
    for name, parts in compared.parts.items():
        groups, alike = _whole.what_holds(parts, compared.names.sealed[name])
        stored = compared.names.stored[compared.names.stored_as[name]]
        for group in groups:
            summed = tuple(of_manifest[rank][name] for rank in group)
            equalities.add_expected(summed, numbers[id(stored)])
        for ranks in alike:
            equalities.add_equal([(of_manifest[rank][name],) for rank in ranks])
    held = {each.sealed: each for name, each in compared.names.stored.items()
            if name not in compared.names.extra}  # fmt: skip
    for name in compared.absent:
        stored = manifest.tensors[name]
        equalities.add_alike(numbers[id(stored)], numbers[id(held[stored.sealed])])
    places = {
        name: {rank: of_manifest[rank][name] for rank in parts if parts[rank].coverage != (0, 0)}
        for name, parts in compared.parts.items()
    }
    return _Judged(equalities, places)


def _add_model(equalities: Equalities, name: str, heard, places):
    """Of a name: the ranks whose parts are equal, and the groups that make up the same whole."""
    alike: dict[tuple, list[tuple[int, ...]]] = {}
    wholes: dict[tuple[int, ...], list[int]] = {}
    for rank, of_rank in enumerate(places):
        if name in of_rank:
            record = heard[rank][name]
            key = (record.coverage, record.digest)
            alike.setdefault(key, []).append((of_rank[name],))
            if record.groups is not None and len(record.groups.whole) > 1:
                wholes.setdefault(record.groups.whole, []).append(rank)
    for ranks in wholes.values():
        key = total(heard[rank][name].digest for rank in ranks)
        alike.setdefault(key, []).append(tuple(places[rank][name] for rank in ranks))
    for sums in alike.values():
        equalities.add_equal(sums)
