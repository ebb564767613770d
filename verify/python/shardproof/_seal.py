"""`shardproof.seal`: the digests of a live model, in the file that `shardproof seal` writes."""

import fnmatch
import json
import os
from collections.abc import Mapping

import torch

from . import _digest, _layout, _outcome, _own, _state_dict, _whole
from ._dtypes import NAMES
from ._finding import Finding, fold
from ._groups import Statement
from ._stored import SEAL_DIGEST, SEAL_SCHEMA
from ._transport import Transport
from ._verdict import Verdict, settled

_STATE = "optimizer."


@_digest.on_host
def seal(
    model, optimizer=None, *, to, prefix="", optimizer_prefix="optimizer.", ignore=(),
    deadline=60.0, group=None, groups=None, mesh=None, layout=None, replace=False,
) -> int:  # fmt: skip
    """Writes the digest of every tensor to the file `to`, on rank 0. Call it on every rank.

    They are those that `shardproof seal` finds in a checkpoint of the model, whatever its format
    and however it is cut. Buffers that are not persistent are left out, as they are of checkpoints.
    model may also be the state dict that is saved: its names and values are then in the seal too,
    so that it is that of the whole checkpoint.

    model, optimizer, ignore, deadline, group, groups, mesh, layout: as of `check`. prefix: goes
    before the model's names, optimizer_prefix before "<FQN>.<key>" of the optimizer's state, so
    that they are those of a checkpoint. replace: whether there may be a file already.
    \\returns how many tensors were sealed.
    \\raises Mismatch on all ranks alike if replicas differ or shards do not make a tensor up.
    \\raises RuntimeError on all ranks alike if there is no tensor, one cannot be read, or the file
    not be written.
    \\raises TimeoutError if a rank does not come.
    """
    transport = Transport(deadline)
    own, cause = None, None
    try:
        said = Statement(group, groups, mesh, layout, claims=not isinstance(model, list | tuple))
        tensors, values = _read(model, optimizer, ignore, said)
        own = {**_parts(tensors), **values}
    except Exception as error:  # whatever it is, the other ranks wait to be told
        cause = error
    received = transport.to_judges(own)
    if received is None:
        transport.fail("cannot read the model", cause, "seal")
    share = sealed = None
    try:
        share, sealed = _judged(received)
    except Exception as error:
        cause = error
    verdict = settled(share, transport)
    if verdict is None:
        transport.fail("cannot judge", cause, "seal")
    if verdict.folds:
        raise _outcome.Mismatch(verdict.folds, verdict.count, what="seal")
    if not verdict.tensors:
        raise RuntimeError("shardproof.seal: there is no tensor to seal")
    everything = transport.to_first(sealed)
    try:
        if everything is not None:
            tensors, values = (dict(_items(each)) for each in zip(*everything, strict=True))
            _write(to, _document(tensors, values, prefix, optimizer_prefix), replace)
    except (OSError, ValueError) as raised:
        cause = raised
    if transport.everybody([int(cause is not None)])[0][0]:
        transport.fail(f"cannot write {to}", cause, "seal")
    return verdict.tensors


def _items(dictionaries):
    for each in dictionaries:
        yield from each.items()


def _judged(received):
    """received: of each rank the parts of tensors and the texts of values, by name, of which this
    rank is the judge. \returns (Verdict, (whole tensors, values) by name)."""
    parts = [
        {name: each for name, each in own.items() if isinstance(each, _whole.Part)}
        for own in received
    ]
    wholes = _whole.wholes(parts)
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
        raise TypeError("beside a state dict there is an optimizer: put its state into that dict")
    return tuple(
        {
            name: value
            for name, value in found.items()
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)
        }
        for found in _state_dict.read(model, said)
    )


def _holders(name, everybody):
    return tuple(rank for rank, own in enumerate(everybody) if name in own)


def _parts(tensors) -> dict[str, _whole.Part]:
    """\\raises ValueError for a tensor that cannot be sealed."""
    parts = {}
    for name, record in _own.records_of(tensors, False).items():
        why = record.unreadable or record.misfit or ("it is on meta" if record.meta else "")
        if not why and tensors[name].dtype not in NAMES:
            why = f"a seal has no name for {record.dtype}"
        if why:
            raise ValueError(f"{name}: {why}")
        parts[name] = _whole.part_of(tensors[name], record)
    return parts


def _digest_of_text(text: str) -> str:
    data = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return _digest.hex_of(_digest.digest_runs(data, _layout.local_runs(data.shape)).digest)


def _document(wholes, values, prefix, optimizer_prefix) -> dict:
    tensors = {}
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
    sealed = {prefix + name: {"digest": _digest_of_text(text)} for name, text in values.items()}
    return {"schema": SEAL_SCHEMA, "digest": SEAL_DIGEST, "tensors": tensors, "values": sealed,
            "files": {}}  # fmt: skip


def _write(to, document, replace):
    """Whole or not at all."""
    to = os.fspath(to)
    if os.path.lexists(to) and not replace:
        raise ValueError("there is such a file: replace=True writes it anew")
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
