"""`seal` of a model that was sealed before and is the same but for its values: it is not described
anew, and the ranks exchange digests alone."""

import contextlib
import ctypes
import dataclasses
import itertools
import weakref

import torch

from .._digests import _digest
from .._holdings import _unchanged
from .._holdings._holding import Holding
from .._holdings._record import judge_of
from .._holdings._unchanged import Look, Unplain
from .._judging import _blocks, _whole
from .._judging._arguments import frozen, numbered
from .._judging._equalities import Equalities
from .._judging._rows import Builder
from .._judging._sent import DIGEST_BYTES, Sent
from .._stored._manifest import Manifest

_VERSION_MAX = 1 << 62
_of_models: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class Again:
    """What a seal leaves behind. asked, said: of its arguments and the model. sizes: in bytes, of
    what this rank, as a judge, is sent. sums: of those that it judges, the ones that are digests of
    its tensors and blocks. order: where the digests
    of the manifest's tensors and blocks are among those of all judges. number: the same on all
    ranks, and of this seal alone."""

    asked: tuple
    said: list
    sent: Sent
    sizes: list[int]
    equalities: Equalities
    sums: list[int]
    order: list[int]
    manifest: Manifest
    number: int = 0


@dataclasses.dataclass
class Sealed:
    """What a rank has found in a seal of everything. tensors: that it has, if none is quantised;
    casts: the dtypes of those that are sent in another one. received: of each rank the parts of the
    tensors that this one judges, and the texts of values; wholes: these tensors and values."""

    tensors: dict[str, Holding] | None
    casts: dict[str, torch.dtype] | None
    received: list[dict]
    wholes: tuple[dict, dict]
    block_bytes: int


def look(model, optimizer, *arguments) -> tuple[Look | None, tuple]:
    """None: of what is not known to be as it was."""
    chunks = model if isinstance(model, list | tuple) else [model]
    if optimizer is None and all(isinstance(each, torch.nn.Module) for each in chunks) and chunks:
        with contextlib.suppress(Unplain, *_unchanged.RAISED):
            return _unchanged.look_at(model), frozen(arguments)
    return None, ()


def manifest_of(model, looked: Look | None, asked: tuple, version, transport) -> Manifest | None:
    """Every rank calls it. \\returns None if the ranks must describe what they have."""
    again, number = looked and _of_models.get(_key(model)), 0
    is_short = version is None or (type(version) is int and abs(version) < _VERSION_MAX)
    if again and is_short and (again.asked, again.said) == (asked, looked.said):
        number = again.number
    own = [number, int(version is None), version if is_short and version else 0]
    if any(each != own for each in transport.everybody(own)) or not number:
        return None
    messages = None
    with contextlib.suppress(RuntimeError):  # where all is described it is told
        messages = again.sent.messages(looked)
    received = transport.exchange(messages)
    if received is None or [len(each) for each in received] != again.sizes:
        return None
    sums = again.equalities.sums(_digest.digests_of(b"".join(received)))
    if not all(right for (right,) in transport.everybody([int(sums is not None)])):
        return None
    own = sums[again.sums]
    everything = _digest.digests_of(
        b"".join(transport.short(ctypes.string_at(own.data_ptr(), own.nbytes)))
    )
    return again.manifest.renewed(everything[again.order], version)


def keep(model, looked: Look | None, asked, sealed: Sealed, prefix, manifest, transport):
    """Every rank calls it, after a seal of everything."""
    again = None
    with contextlib.suppress(Unplain):
        if looked is not None and sealed.tensors is not None:
            again = Again(
                asked, looked.said, _sent(looked, sealed, transport.world_size),
                *_judged(sealed.received, sealed.wholes[0]),
                _order(manifest, prefix, transport.world_size),
                manifest.renewed(_digests_of(manifest), None),  # whose first one the caller has
            )  # fmt: skip
    again = numbered(again, transport)
    if again is not None:
        _of_models[_key(model)] = again


def _key(model):
    return model[0] if isinstance(model, list | tuple) else model


def _digests_of(manifest: Manifest) -> torch.Tensor:
    return torch.cat([manifest.digests, *manifest.blocks.values()])


def _sent(looked: Look, sealed: Sealed, world_size: int) -> Sent:
    builder = Builder(looked)
    said: list[list[list[int]]] = [[] for _ in range(world_size)]
    for name, held in sorted(sealed.tensors.items()):  # the order that the judges count on
        runs, cast = {}, sealed.casts.get(name)
        dtype = cast or held.dtype
        if _blocks.count_in(held, sealed.block_bytes, dtype):
            runs = _blocks.cut(held.runs, dtype.itemsize, sealed.block_bytes)
        rows = [
            builder.add(held, held.local, each, (0, 0), cast=cast)
            for each in runs.values() or [held.runs]
        ]
        said[judge_of(name, world_size)] += [rows, *([row] for row in rows if runs)]
    rows, places = builder.rows()
    return Sent(rows, [[[places[row] for row in each] for each in one] for one in said], {})


def _judged(received, wholes) -> tuple[list[int], Equalities, list[int]]:
    equalities, sums, places, sizes, count = Equalities(), [], [], [], 0
    for own in received:
        places.append({})
        for name, part in sorted(own.items()):
            for number in (None, *part.blocks):
                places[-1][name, number] = count
                count += 1
        sizes.append(len(places[-1]) * DIGEST_BYTES)
    for name in sorted(wholes):
        by_rank = {rank: own[name] for rank, own in enumerate(received) if name in own}
        groups = _whole.groups_of(by_rank)
        sums.append(
            equalities.add_equal(
                [tuple(places[rank][name, None] for rank in each) for each in groups]
            )
        )
        for number in range(len(wholes[name].blocks)):
            having = [rank for rank in groups[0] if number in by_rank[rank].blocks]
            sums.append(equalities.add_equal([tuple(places[r][name, number] for r in having)]))
    return sizes, equalities, sums


def _order(manifest: Manifest, prefix: str, world_size: int) -> list[int]:
    """Where the judges' sums are that are digests of the manifest's tensors, and of its blocks."""
    of_judge: list[list[str]] = [[] for _ in range(world_size)]
    for name in manifest.tensors:
        own = name.removeprefix(prefix)
        of_judge[judge_of(own, world_size)].append(own)
    at, count = {}, 0
    for own in itertools.chain(*map(sorted, of_judge)):
        at[prefix + own] = count
        count += 1 + len(manifest.blocks.get(prefix + own, ()))
    blocks = [
        at[name] + 1 + number
        for name, each in manifest.blocks.items()
        for number in range(len(each))
    ]
    return [at[name] for name in manifest.tensors] + blocks
