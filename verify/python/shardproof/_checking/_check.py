"""`shardproof.check`: do all ranks of a running job hold the same model, whole, and finite?

Every rank digests what it holds, in place. What it says of each tensor travels to the rank that
judges the tensor's name, by a pure function; the verdicts travel back, so that all ranks come to
the same outcome. What a rank sends and keeps grows with its own tensors. Only where something
differs do block digests, and then a few bytes, travel too, to name the element.
"""

import warnings

from .._against._against import Source
from .._digests import _called
from .._judging._finding import Finding
from .._judging._outcome import Mismatch, Outcome
from .._judging._transport import Transport
from .._stored._manifest import Manifest
from .._syncs import _log
from ._background import Behind, Pending
from ._look import Asked, look
from ._turns import Turns, refuse_nonsense

__all__ = ["Finding", "Mismatch", "Outcome", "Pending", "check"]


@_called.by_job
def check(
    model, *, optimizer=None, ignore=(), finite=True, deadline=60.0,
    group=None, groups=None, mesh=None, layout=None, strict=False, every=1, budget_s=None,
    against=None, prefix=None, map=None, config=None, background=False, log=None,
) -> "Outcome | Pending":  # fmt: skip
    """Compares the model of this rank with that of all others. Call it on every rank.

    model: an nn.Module, or the list of modules of a pipeline stage. The check fails if ranks differ
    in names, dtypes, shapes, placements or ties, if a tensor is on meta, if the shards of a tensor
    leave a gap or overlap, if replicas differ in a bit, or if a value is NaN or Inf.

    A DTensor is compared over its own mesh, tensors of FSDP and DDP over their process group. Any
    other tensor must be the same on all ranks, unless one of these says otherwise:
    group: a process group, or ranks, that have the same tensors. groups: the same, by pattern of
    names. mesh: the axes of the job, a DeviceMesh or {axis: the groups of ranks along it}. Along
    "pp", names may differ, but a name that two stages have must be one tensor. layout: by pattern
    of names, {axis: Shard(dim)}, or "local" for tensors that each rank has for itself. Attributes
    that Megatron's layers set on parameters refer to the axis "tp". For a list of models, nothing
    is assumed.

    optimizer: one or a list; its state is checked too, under "optimizer.<FQN>.<key>". ignore:
    patterns of names that may differ between ranks. finite: False if values need not be finite, or
    {pattern: False}. deadline: seconds to wait for the slowest rank. strict: what could not be
    compared is an error too. Without a process group, only this process is checked.

    every: only the first call for this model and every N-th call after it check; the others return
    at once. budget_s: seconds that a rank may spend on its own tensors. A call checks as many
    tensors as that allows, the same ones on all ranks, and the next call goes on from there. Pass
    the same values of both on all ranks.

    against: the path of a checkpoint or a seal, or the manifest that `seal` returned, which must
    hold the same values, dtypes and shapes. With a manifest, all of its tensors must be in the
    model. prefix: the prefix of the model's names in it, if not the one under which most match.
    map: how tensors of `against` become those of the model, as in `shardproof compare --map`: a
    rule, a file of rules, the name of a ready map, or a list of them. config: the config.json, or a
    model's config, that the map takes sizes from. log: a file "*.syncs.jsonl" to which rank 0 adds
    a line about the manifest and the result, for `shardproof report`; on all ranks or on none.
    \\raises Mismatch on all ranks alike, naming rank, tensor and index.
    \\raises RuntimeError on all ranks alike if the model of one rank cannot be read.
    \\raises TimeoutError if a rank does not call it in time.
    """
    refuse_nonsense(deadline, every, budget_s)
    if background and against is not None:
        raise ValueError(
            "shardproof.check: against= reads files within the call: take shardproof.digests(model)"
            ", and check them later"
        )
    if log is not None and not isinstance(against, Manifest):
        raise ValueError(
            "shardproof.check: log= records checks against a manifest: pass one as against="
        )
    _log.check_path(log, log and against.version, "check")
    asked = Asked(
        lambda: (model, optimizer), ignore, finite, deadline, strict, budget_s,
        Source(against, prefix, map, config), (group, groups, mesh, layout),
    )  # fmt: skip
    turns = Turns.of(model)
    is_due = turns.is_due(every)
    if turns.pending is not None:
        turns.pending.conclude()
    if not is_due:
        outcome = Outcome(0, 0, (), looked=False)
        if log is not None:
            _logged(log, against, deadline, outcome=outcome)
        return Pending(outcome=outcome) if background else outcome
    if not background:
        return look(asked, turns) if log is None else _looked(asked, turns, log)
    turns.pending = Behind(asked, turns, model, optimizer)
    return Pending(turns.pending, kept=(model, optimizer))


def _looked(asked: Asked, turns: Turns, log) -> Outcome:
    """What the ranks agree on is in the log, too. A rank that does not come leaves no line."""
    manifest = asked.against.path
    try:
        outcome = look(asked, turns)
    except (Mismatch, RuntimeError) as error:
        said = {"mismatch" if isinstance(error, Mismatch) else "refused": error}
        try:
            _logged(log, manifest, asked.deadline, **said)
        except (RuntimeError, TimeoutError) as unlogged:  # what was found counts for more
            warnings.warn(str(unlogged), stacklevel=3)
        raise
    _logged(log, manifest, asked.deadline, outcome=outcome)
    return outcome


def _logged(log, manifest, deadline, **said):
    """\\raises RuntimeError on all ranks alike if rank 0 cannot write it."""
    transport, cause = Transport(deadline), None
    try:
        if transport.rank == 0:
            _log.append(log, manifest, _log.received(**said))
    except OSError as error:
        cause = error
    transport.agree(f"cannot write {log}", cause)
