"""The dtype in which forward passes compute with the model's matrices: alike on all ranks, and what
the subject says; and that in which ranks add up."""

import fnmatch

from ._step_events import Batch, Reduced


def said_by(subject, case) -> dict[str, str]:
    """By pattern of names, of which the last that matches counts: the dtype. What COMPUTES of a
    subject's module says: one for all, such patterns, or a function of the case that returns
    either."""
    said = getattr(subject, "COMPUTES", {})
    said = said(case) if callable(said) else said
    return {"*": said} if isinstance(said, str) else dict(said)


def hold_reduced(stage, said, after):
    """said: REDUCES of a subject's module: no collective adds up in fewer bits. Along axes other
    than dp_*, these may be of activations."""
    wrong = {}
    for rank, own in enumerate(after):
        meshes = [each.case["mesh"] for each in own.since if isinstance(each, Batch)]
        if any(not axis.startswith("dp_") for mesh in meshes for axis in mesh):
            return
        stage.compared += 1
        reduced = [_word(each.dtype) for each in own.since if isinstance(each, Reduced)]
        if narrow := [each for each in reduced if each != said]:
            wrong[rank] = narrow[0]
        stage.exact += not narrow
    if wrong:
        stage.deviates(
            "precision", "", wrong, f"ranks have added up in {wrong[min(wrong)]}, and REDUCES says "
            f"{said}", expected=said, seen=wrong[min(wrong)],
        )  # fmt: skip


def hold(stage, said, after):
    """after: of each rank, the Moment after some steps."""
    seen = [_seen(own) for own in after]
    for name in sorted({name for own in seen for name in own}):
        of_rank = {rank: own[name] for rank, own in enumerate(seen) if name in own}
        stage.compared += 1
        wanted = next((d for p, d in reversed(said.items()) if fnmatch.fnmatchcase(name, p)), None)
        if wanted is not None:
            wrong = {rank: each for rank, each in of_rank.items() if each != wanted}
            what, expected = "and COMPUTES says", wanted
        else:
            expected = _usual(of_rank.values())
            wrong = {rank: each for rank, each in of_rank.items() if each != expected}
            what = "and that of the other ranks"
        if wrong:
            rank = min(wrong)
            stage.deviates(
                "precision", name, wrong, f"the forward pass uses it in {wrong[rank]}, "
                f"{what} {expected}", expected=expected, seen=wrong[rank],
            )  # fmt: skip
            return  # of the others the same is to be expected
        stage.exact += 1


def _word(dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _usual(dtypes) -> str:
    every = list(dtypes)
    return max(every, key=every.count)


def _seen(own) -> dict[str, str]:
    """By name, of matrices: the dtype, or those, of a rank's batches. Under autocast all are of its
    dtype."""
    found = {}
    for batch in own.since:
        if not isinstance(batch, Batch) or not batch.weight:
            continue
        for name, part in own.model.items():
            if part.kind == "parameter" and len(part.shape) > 1 and name in batch.dtypes:
                dtype = batch.dtypes[name]
                if batch.autocast is not None and dtype.is_floating_point:
                    dtype = batch.autocast
                found.setdefault(name, set()).add(_word(dtype))
    return {name: " and ".join(sorted(dtypes)) for name, dtypes in found.items()}
