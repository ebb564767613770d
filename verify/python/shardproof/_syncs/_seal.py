"""`shardproof.seal`: the digests of a live model, as a manifest and in the file that `shardproof
seal` writes."""

import array
import json
import math
import os
from collections.abc import Mapping

import torch

from .._digests import _called, _digest
from .._dtypes import NAMES
from .._holdings import _layout
from .._holdings._groups import Statement
from .._holdings._names import not_ignored
from .._holdings._options import taken_and_rate
from .._judging import _blocks, _outcome, _own, _whole
from .._judging._finding import Finding, fold
from .._judging._transport import Transport
from .._judging._verdict import Verdict, settled
from .._stored._checkpoint import SEAL_DIGEST, SEAL_SCHEMA
from .._stored._manifest import Manifest, check_version
from . import _cast, _log, _reseal, _scaled, _state_dict

_STATE = "optimizer."


@_called.by_job
def seal(
    model, optimizer=None, *, to=None, version=None, cast=None, prefix="",
    optimizer_prefix="optimizer.", ignore=(), deadline=60.0, group=None, groups=None, mesh=None,
    layout=None, replace=False, log=None, stepped=None,
) -> Manifest:  # fmt: skip
    """Returns the digest of every tensor, the same on every rank. Call it on every rank.

    The digests are those that `shardproof seal` finds in a checkpoint of the model, whatever its
    format and sharding. Buffers that are not persistent are left out, as in checkpoints. model may
    also be the state dict that is saved: its names and its other values are then in the seal too,
    so that the seal covers the whole checkpoint.

    model, optimizer, ignore, deadline, group, groups, mesh, layout: as in `check`. to: a file that
    rank 0 writes the seal to; replace: whether it may overwrite that file. version: the number of
    the sync. cast: the dtype in which floats are sent, or {pattern of names: dtype}: the digest is
    that of the values after `tensor.to(dtype)`. For weights that the engine quantises, pass a
    `Scaled` or (dtype, Scaled) in place of the dtype. prefix: is put before the model's names, and
    optimizer_prefix before "<FQN>.<key>" of the optimizer's state, to match a checkpoint's names.
    log: a file "*.syncs.jsonl" to which rank 0 adds a line, for `shardproof report`; stepped: the
    optimizer that steps the model; its number of steps goes into that line.
    \\returns the manifest, for `check(..., against=manifest)` anywhere: send its `to_json()`.
    \\raises Mismatch on all ranks alike if replicas differ or shards do not form a tensor.
    \\raises RuntimeError on all ranks alike if there is no tensor, or if a tensor cannot be read or
    the file cannot be written.
    \\raises TimeoutError if a rank does not call it in time.
    """
    _log.check_path(log, version, "seal")
    transport, cause = Transport(deadline, "seal"), None
    said = group, groups, mesh, layout
    looked, asked = _reseal.look(model, optimizer, ignore, cast, prefix, said)
    manifest = _reseal.manifest_of(model, looked, asked, version, transport)
    if manifest is None:
        sealed = _sealed(model, optimizer, ignore, cast, said, version, transport)
        manifest, cause = _gathered(transport, sealed, version, prefix, optimizer_prefix)
        if not any(failed for (failed,) in transport.everybody([int(manifest is None)])):
            _reseal.keep(model, looked, asked, sealed, prefix, manifest, transport)
    try:
        if to is not None and manifest is not None and transport.rank == 0:
            write_seal(to, manifest.seal, replace)
        if log is not None and manifest is not None and transport.rank == 0:
            rounds = _cast.rounds(manifest, cast)
            _log.append(log, manifest, _log.sent(manifest, rounds, *taken_and_rate(stepped)))
    except (OSError, ValueError, TypeError) as raised:
        cause = raised
    written = " or ".join(str(each) for each in (to, log) if each is not None)
    what = f"write {written}" if written else "make the manifest"
    transport.agree(f"cannot {what}", cause)
    return manifest


def _sealed(model, optimizer, ignore, cast, said, version, transport) -> _reseal.Sealed:
    sent = shared = own = share = sealed = cause = None
    try:
        statement = Statement(*said, claims=not isinstance(model, list | tuple))
        check_version(version)
        tensors, values = _read(model, optimizer, ignore, statement)
        sent = _Sent(tensors, cast)
        shared = sent.shared()
    except Exception as error:  # whatever it is, the other ranks wait to be told
        cause = error
    block_bytes = max(transport.everybody([sent.block_bytes() if sent else 0]))[0]
    known = _scaled.largest_of_all(shared, transport) if _cast.quantises(cast) else {}
    try:
        if None not in (sent, known):
            own = {**sent.parts(known, block_bytes), **values}
    except Exception as error:
        cause = error
    received = transport.to_judges(own) if known is not None else None
    if received is None:
        transport.fail("cannot read the model", cause)
    try:
        share, sealed = _judged(received, block_bytes)
    except Exception as error:
        cause = error
    verdict = settled(share, transport)
    if verdict is None:
        transport.fail("cannot judge", cause)
    if verdict.folds:
        raise _outcome.Mismatch(verdict.folds, verdict.count, what="seal")
    if not verdict.tensors:
        raise RuntimeError("shardproof.seal: there is no tensor to seal")
    return _reseal.Sealed(*sent.unquantised(), received, sealed, block_bytes)


def _gathered(transport, sealed, version, prefix, optimizer_prefix):
    """\\returns (the manifest, why there is none), on all ranks."""
    versions = transport.objects(version)
    everything = transport.to_first(sealed.wholes)
    manifest, answer = None, b""
    if everything is not None:
        try:
            if odd := [rank for rank, each in enumerate(versions) if each != version]:
                raise ValueError(
                    f"rank {odd[0]} says version {versions[odd[0]]}, rank 0 says {version}"
                )
            tensors, values = (dict(_items(each)) for each in zip(*everything, strict=True))
            document, blocks = _document(tensors, values, prefix, optimizer_prefix)
            manifest = Manifest(document, version, sealed.block_bytes if blocks else 0, blocks)
            answer = manifest.to_json().encode("utf-8", "surrogatepass")
        except ValueError as error:
            answer = b"!" + str(error).encode("utf-8", "replace")
    (said,) = transport.of_some(answer).values()
    if said[:1] == b"!":
        return None, ValueError(said[1:].decode()) if transport.rank == 0 else None
    return manifest or Manifest.from_json(said.decode("utf-8", "surrogatepass")), None


def _items(dictionaries):
    for each in dictionaries:
        yield from each.items()


def _judged(received, block_bytes):
    """received: of each rank the parts of tensors and the texts of values, by name, of which this
    rank is the judge. \\returns (Verdict, (whole tensors, values) by name)."""
    parts = [
        {name: each for name, each in own.items() if isinstance(each, _whole.Part)}
        for own in received
    ]
    wholes = _whole.wholes(parts, block_bytes)
    findings = [
        Finding("unsealed", name, _holders(name, parts), whole)
        for name, whole in wholes.items()
        if isinstance(whole, str)
    ]
    values = {}
    for own in reversed(received):  # of the first rank that has it
        values |= {name: each for name, each in own.items() if isinstance(each, str)}
    verdict = Verdict(len(wholes), count=len(findings), folds=fold(findings))
    return verdict, ({} if findings else wholes, values)


def _read(model, optimizer, ignore, said):
    """\\returns (tensors, values) by name."""
    if not isinstance(model, Mapping):
        tensors = _own.tensors_of(model, optimizer, ignore, said)
        return {name: held for name, held in tensors.items() if held.persistent}, {}
    if optimizer is not None:
        raise TypeError("an optimizer was passed with a state dict: put its state into that dict")
    return tuple(not_ignored(found, ignore) for found in _state_dict.read(model, said))


def _holders(name, everybody):
    return tuple(rank for rank, own in enumerate(everybody) if name in own)


class _Sent:
    """The tensors as they are sent. What is cast is made one tensor at a time: a second model is
    nowhere."""

    def __init__(self, tensors, cast):
        self._steps = {name: _cast.steps_of(held, cast) for name, held in tensors.items()}
        self._tensors = tensors

    def unquantised(self) -> tuple[dict, dict] | tuple[None, None]:
        """The tensors, and the dtypes of those that are cast, if none is quantised."""
        if any(scaled is not None for _, scaled in self._steps.values()):
            return None, None
        casts = {name: dtype for name, (dtype, _) in self._steps.items() if dtype is not None}
        return self._tensors, casts

    def shared(self) -> dict[str, _scaled.Shared]:
        """Of the blocks of what is quantised, those that other ranks have a part of."""
        return {
            name: _scaled.Blocks(self._tensors[name], scaled).shared(dtype)
            for name, (dtype, scaled) in self._steps.items()
            if scaled is not None
        }

    def block_bytes(self) -> int:
        tensors = self._tensors.values()
        return _blocks.bytes_for(
            sum(math.prod(each.shape) * each.dtype.itemsize for each in tensors)
        )

    def parts(self, known, block_bytes: int) -> dict[str, _whole.Part]:
        """known: as `shared`, of all ranks. \\raises ValueError for a tensor that cannot be
        sealed."""
        as_is = {name: held for name, held in self._tensors.items()
                 if self._steps[name] == (None, None)}  # fmt: skip
        parts = _parts_of(as_is, block_bytes)
        for name, (dtype, scaled) in self._steps.items():
            if name not in as_is:
                made = [_cast.to_dtype(self._tensors[name], dtype)]
                if scaled is not None:
                    made = _scaled.Blocks(made[0], scaled).quantised(known[name])
                if twice := [each.name for each in made if each.name in parts]:
                    raise ValueError(f"two tensors would have the name {twice[0]!r}")
                parts |= _parts_of({each.name: each for each in made}, block_bytes)
        return parts


def _parts_of(tensors, block_bytes: int) -> dict[str, _whole.Part]:
    """\\raises ValueError for a tensor that cannot be sealed."""
    parts, reading = {}, _own.Reading(tensors, False, block_bytes=block_bytes)
    reading.read()
    for name, record in reading.records.items():
        why = record.unreadable or record.misfit or ("it is on meta" if record.meta else "")
        if not why and tensors[name].dtype not in NAMES:
            why = f"a seal has no name for {record.dtype}"
        if why:
            raise ValueError(f"{name}: {why}")
        parts[name] = _whole.part_of(record, reading.blocks.get(name))
    return parts


def _digest_of_text(text: str) -> str:
    data = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return _digest.hex_of(_digest.digest_runs(data, _layout.local_runs(data.shape)).digest)


def _document(wholes, values, prefix, optimizer_prefix) -> tuple[dict, dict]:
    """\\returns the seal, and the digests of blocks by name."""
    tensors, blocks = {}, {}
    for name, whole in wholes.items():
        is_state = name.startswith(_STATE) and whole.kind == "optimizer"
        own = optimizer_prefix + name.removeprefix(_STATE) if is_state else prefix + name
        if own in tensors:
            raise ValueError(f"two tensors would have the name {own!r}")
        tensors[own] = {
            "dtype": NAMES[whole.dtype],
            "shape": list(whole.shape),
            "digest": _digest.hex_of(whole.digest),
        }
        if whole.blocks:
            lanes = array.array("Q", (lane for each in whole.blocks for lane in each))
            blocks[own] = _digest.digests_of(lanes)
    sealed = {prefix + name: {"digest": _digest_of_text(text)} for name, text in values.items()}
    return {"schema": SEAL_SCHEMA, "digest": SEAL_DIGEST, "tensors": tensors, "values": sealed,
            "files": {}}, blocks  # fmt: skip


def write_seal(to, document, replace):
    """Whole or not at all."""
    to = os.fspath(to)
    if os.path.lexists(to) and not replace:
        raise ValueError("the file exists already: replace=True overwrites it")
    part = f"{to}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, to)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
