"""What a job that divides its optimizer's state by hand (ZeRO-1) steps in place of parameters: this
rank's part of a copy of several of them, flattened and one after the other, or of one.

Nothing says which elements are whose. The values tell, where parts are made or loaded and are equal
to the parameters. What was told once of a part holds as long as it is there.
"""

import dataclasses

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ._stretch import Stretch

_known = WeakIdKeyDictionary()  # of each part: its _Pieces


@dataclasses.dataclass
class Piece:
    """Of a part, from `at` on: elements of a parameter, as many as the stretch has."""

    parameter: object
    stretch: Stretch
    at: int

    @property
    def length(self) -> int:
        return self.stretch.end - self.stretch.begin


def pieces_of(part) -> list[Piece]:
    """Those that have elements here."""
    return [each for each in _known.get(part, []) if each.length]


def has_some(optimizer) -> bool:
    steps = _groups(optimizer) if _known else []
    return any(p in _known for group in steps for p in group["params"])


def _groups(optimizer):
    found = getattr(optimizer, "param_groups", None)
    return found if isinstance(optimizer, torch.optim.Optimizer) else []


def stretches_of(optimizer):
    """As _deepspeed.stretches_of."""
    for part, state in optimizer.state.items():
        if part not in _known:
            yield part, state, None
            continue
        for piece in pieces_of(part):
            own = {"main_param": _narrowed(part.detach(), piece)}
            for key, value in state.items():
                is_cut = getattr(value, "shape", None) == part.shape
                own[key] = _narrowed(value, piece) if is_cut else value
            yield piece.parameter, own, piece.stretch


def groups_of(optimizer):
    """As _deepspeed.groups_of."""
    return [
        (group, [own for part in group["params"] for own in _parameters_of(part)])
        for group in _groups(optimizer)
    ]


def _parameters_of(part) -> list:
    return [each.parameter for each in _known[part]] if part in _known else [part]


def _narrowed(tensor, piece):
    return tensor.reshape(-1).narrow(0, piece.at, piece.length)


def look_at(order, optimizers, rank):
    """order: Holdings of the model's parameters as they were registered. optimizers: those that may
    step parts."""
    stepped = [p for each in optimizers for group in _groups(each) for p in group["params"]]
    owned, known = {id(held.owner) for held in order}, {id(p) for p in stepped}
    parts = [p for p in stepped if id(p) not in owned and p not in _known and _is_plain(p)]
    left = [held for held in order if held.requires_grad and id(held.owner) not in known]
    if not parts or not left or any(held.groups is None or held.local is None for held in left):
        return
    parts = [part for part in parts if not any(_is_whole(part, held) for held in left)]
    taken = set()
    for several in _orders(left):
        for part in parts if not any(id(held.owner) in taken for held in several) else ():
            if part in _known:
                continue
            pieces = _fit(part, several, rank)
            # A part of which padding is all could be one of anything.
            if any(each.length for each in pieces) or (pieces and several is left):
                _known[part] = pieces
                taken |= {id(held.owner) for held in several}
                break


def _is_plain(tensor) -> bool:
    is_usual = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
    return is_usual and tensor.is_floating_point()


def _is_whole(part, held) -> bool:
    """Whether it is a copy of the parameter as this rank has it."""
    is_like = part.shape == held.local.shape and part.device == held.local.device
    return is_like and torch.equal(part.detach().to(held.dtype), held.local.detach())


def _orders(left):
    """Yields what may lie in one flat tensor: all, what decays and what does not, or one."""
    yield left
    yield from filter(None, ([held for held in left if (len(held.shape) > 1) == is_matrix]
                             for is_matrix in (True, False)))  # fmt: skip
    yield from ([held] for held in left)


def _fit(part, several, rank) -> list[Piece]:
    """Where a part lies in them; empty if it is none of them."""
    ranks = several[0].groups.alike
    total, index = sum(held.local.numel() for held in several), ranks.index(rank)
    size = _size_of_parts(part.numel(), total, len(ranks), index)
    found, begin = [], 0
    for held in several if size else ():
        stretch = Stretch.of_flat(begin, begin + held.local.numel(), size, ranks, rank)
        found.append(Piece(held.owner, stretch, begin + stretch.begin - index * size))
        begin += held.local.numel()
    is_copy = all(map(_is_copy, [part] * len(found), found, several))
    return found if is_copy else []


def _size_of_parts(count, total, ranks, index) -> int:
    """Of equal parts of `total` elements, one of which has `count` of them; 0 if it can be none.
    The last one is padded, or has less."""
    padding = count * ranks - total
    if 0 <= padding < count or count == -(-total // ranks):
        return count
    rest, others = total - count, ranks - 1
    is_last = index == others and others and rest % others == 0 and count <= rest // others
    return rest // others if is_last else 0


def _is_copy(part, piece, held) -> bool:
    if not piece.length:
        return True
    own = held.local.detach().reshape(-1)[piece.stretch.begin : piece.stretch.end]
    here = _narrowed(part.detach(), piece)
    return own.device == here.device and torch.equal(here.to(own.dtype), own)
