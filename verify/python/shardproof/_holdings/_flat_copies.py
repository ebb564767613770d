"""What a job that divides its optimizer's state by hand (ZeRO-1) steps in place of parameters: this
rank's part of a copy of several of them, flattened and one after the other, or of one; or copies of
those parameters that are this rank's to step.

Nothing says which elements are whose. The values tell, where parts are made or loaded and are equal
to the parameters. What was told once of a part holds as long as it is there.
"""

import dataclasses

import torch
from torch.utils.weak import WeakIdKeyDictionary

from . import _cut_by_hand
from ._stretch import Stretch

_known = WeakIdKeyDictionary()  # of each part: its Pieces
_elsewhere = WeakIdKeyDictionary()  # of a rank's first part: parameters that only other ranks step


@dataclasses.dataclass
class Piece:
    """Of a part, from `at` on: elements of a parameter, as many as the stretch has. shape: the
    parameter's, where every rank has all of it."""

    parameter: object
    stretch: Stretch
    at: int
    shape: tuple[int, ...] | None = None

    @property
    def length(self) -> int:
        return self.stretch.end - self.stretch.begin


def pieces_of(part) -> list[Piece]:
    return _known.get(part, [])


def has_some(optimizer) -> bool:
    steps = _groups(optimizer) if _known else []
    return any(p in _known for group in steps for p in group["params"])


def _groups(optimizer):
    found = getattr(optimizer, "param_groups", None)
    return found if isinstance(optimizer, torch.optim.Optimizer) else []


def stretches_of(optimizer):
    """As _deepspeed.stretches_of; of what only other ranks step, an empty one."""
    for part, state in optimizer.state.items():
        if part not in _known:
            yield part, state, None
            continue
        for piece in _known[part]:
            stretch = piece.stretch if piece.shape is None else None
            yield piece.parameter, _narrowed_state(part, state, piece), stretch
        for piece in _elsewhere.get(part, []):
            own = _narrowed_state(part, state, piece)
            cut = {key: each for key, each in own.items() if each is not state.get(key)}
            yield piece.parameter, cut, piece.stretch


def _narrowed_state(part, state, piece) -> dict:
    own = {"main_param": _narrowed(part.detach(), piece)}
    for key, value in state.items():
        is_cut = getattr(value, "shape", None) == part.shape
        own[key] = _narrowed(value, piece) if is_cut else value
    return own


def groups_of(optimizer):
    """As _megatron.groups_of."""
    groups = _groups(optimizer)
    own = [(each, [p for part in each["params"] for p in _parameters_of(part)]) for each in groups]
    rest = [
        piece.parameter
        for each in groups
        for part in each["params"]
        for piece in _elsewhere.get(part, [])
    ]
    return [*own, ({}, rest)] if rest else own


def _parameters_of(part) -> list:
    return [each.parameter for each in _known[part]] if part in _known else [part]


def _narrowed(tensor, piece):
    own = tensor.reshape(-1).narrow(0, piece.at, piece.length)
    return own if piece.shape is None else own.view(piece.shape)


def look_at(order, optimizers, rank):
    """order: Holdings of the model's parameters as they were registered. optimizers: those that may
    step parts."""
    stepped = [p for each in optimizers for group in _groups(each) for p in group["params"]]
    owned, steps = {id(held.owner) for held in order}, {id(p) for p in stepped}
    parts = [p for p in stepped if id(p) not in owned and p not in _known and _is_plain(p)]
    left = [held for held in order if held.requires_grad and id(held.owner) not in steps]
    if not parts or not left or any(held.groups is None or held.local is None for held in left):
        return
    found = _cut_by_hand.pieces_in(parts, left, rank)
    if not found:
        return
    here = {id(held.owner): length for _, pieces in found for held, _, length, _ in pieces}
    is_whole = all(here.get(id(held.owner)) == held.local.numel() for held in left)
    for part, pieces in found:
        _known[part] = [
            Piece(held.owner, _stretch(held, begin, begin + length), at,
                  tuple(held.local.shape) if is_whole else None)
            for held, begin, length, at in pieces
        ]  # fmt: skip
    rest = [held for held in left if id(held.owner) not in here]
    _elsewhere[found[0][0]] = [Piece(held.owner, _stretch(held, 0, 0), 0) for held in rest]


def _stretch(held, begin, end) -> Stretch:
    """Which other ranks have a part of it cannot be told here: all of them say what they have."""
    return Stretch(begin, end, tuple(sorted(held.groups.alike)), ())


def _is_plain(tensor) -> bool:
    is_usual = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
    return is_usual and tensor.is_floating_point()
