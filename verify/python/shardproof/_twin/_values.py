"""Tensors of a subject's ranks (_step_events.py) as whole ones, and back."""

import pathlib

import torch

from ._step_events import WHY_NOT, Moment, Part


class Uneven(Exception):
    """Why what ranks have left is not one job's, in one line."""


def moments_in(folder: str) -> list[list[Moment]]:
    """In their order: at each observed stage, what each rank had. \\raises Uneven."""
    root = pathlib.Path(folder)
    count = len(list(root.glob("rank_*")))
    found = []
    for rank in range(count):
        own = root / f"rank_{rank}"
        if (own / WHY_NOT).exists():
            raise Uneven((own / WHY_NOT).read_text())
        files = sorted(own.glob("*.pt"))
        found.append([torch.load(path, weights_only=False, mmap=True) for path in files])
    stages = [[(each.stage, each.step) for each in of_rank] for of_rank in found]
    if any(each != stages[0] for each in stages):
        raise Uneven("ranks did not observe the same stages")
    return [list(each) for each in zip(*found, strict=True)]


def _views(full, local, run):
    size = (run.count, run.length)
    of_full = full.as_strided(size, (run.stride or run.length, 1), run.start)
    return of_full, local.as_strided(size, (run.local_stride or run.length, 1), run.local_start)


def whole(parts: list[Part]) -> torch.Tensor | None:
    """None if they do not make up the tensor. Of copies the first one counts."""
    first = parts[0]
    count = torch.Size(first.shape).numel()
    full = torch.empty(count, dtype=first.dtype)
    known = torch.zeros(count, dtype=torch.bool)
    for part in reversed(parts):
        if part.shape != first.shape or part.dtype != first.dtype:
            return None
        for run in part.runs:
            into, values = _views(full, part.local, run)
            into.copy_(values)
            _views(known, part.local, run)[0].fill_(True)
    if not bool(known.all()):
        return None
    full = full.view(first.shape)
    return torch.view_as_complex(full) if first.is_complex else full


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex one as pairs of real numbers."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In F64, or what has as many bits in each part; whole numbers as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def agree(parts: list[Part], full: torch.Tensor) -> bool:
    """Whether all copies are alike. full: the whole tensor that the parts make up."""
    return all(torch.equal(cut(full, part).nan_to_num(), part.local.nan_to_num()) for part in parts)


def cut(full: torch.Tensor, part: Part) -> torch.Tensor:
    """What a rank has of a whole tensor: flat, as its part is."""
    full = as_real(full)
    local = torch.zeros(part.local.numel(), dtype=full.dtype)
    flat = full.contiguous().reshape(-1)
    for run in part.runs:
        values, into = _views(flat, local, run)
        into.copy_(values)
    return local


def place_of(part: Part, local: int) -> int:
    """The index in the whole tensor of an element of the part."""
    for run in part.runs:
        for number in range(run.count):
            at = local - run.local_start - number * run.local_stride
            if 0 <= at < run.length:
                return (run.start + number * run.stride + at) // (2 if part.is_complex else 1)
    return 0


def is_cut(part: Part) -> bool:
    return part.local.numel() != torch.Size(part.shape).numel()
