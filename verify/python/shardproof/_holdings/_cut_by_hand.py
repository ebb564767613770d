"""Which elements of parameters a rank's parts are, by their values: pieces (Holding, first element
of it, how many, where they begin in the part)."""

import dataclasses

import torch

_PROBES = 16  # values that tell where a part begins
_PLACES = 64  # at most, where these are alike
_ELEMENTS_MAX = 1 << 33  # that are looked at to find where parts begin


def pieces_in(parts, left, rank) -> list:
    """[(part, its pieces)], in the order of parts, of those of which is known what they are; no
    element of a parameter is in two of them. left: Holdings of the parameters that are not stepped
    themselves, in their order. Empty if this rank has whole copies of all."""
    found, taken = {}, set()
    whole = sum(held.local.numel() for held in left)
    search = len(parts) * whole <= _ELEMENTS_MAX
    after = None  # the parameter that the part before ends in
    for part in parts:
        pieces = _even(part, left, taken, rank)
        if pieces is None and search:
            pieces = _Search(part.detach().reshape(-1), left, taken).first(after)
        if pieces:
            after = pieces[-1][0]
        if pieces is not None:
            found[id(part)] = pieces
            taken |= {id(held.owner) for held, *_ in pieces}
    are_whole = all(_is_whole(part, found[id(part)]) for part in parts if id(part) in found)
    if are_whole and len(taken) == len(left):
        return []
    return [(part, found[id(part)]) for part in parts if id(part) in found]


def _is_whole(part, pieces) -> bool:
    """Whether it is a copy of a parameter as this rank has it."""
    return len(pieces) == 1 and part.shape == pieces[0][0].local.shape


def _even(part, left, taken, rank):
    """As one of equal parts, whose rank says where it begins; None if it is none."""
    for several in _orders(left):
        if any(id(held.owner) in taken for held in several):
            continue
        pieces = _fit(part, several, rank)
        # A part of which padding is all could be one of anything.
        if pieces or (pieces is not None and several is left and part.numel()):
            return pieces
    return None


def _orders(left):
    """Yields what may lie in one flat tensor: all, what decays and what does not, or one."""
    yield left
    yield from filter(None, ([held for held in left if (len(held.shape) > 1) == is_matrix]
                             for is_matrix in (True, False)))  # fmt: skip
    yield from ([held] for held in left)


def _fit(part, several, rank):
    """Where a part lies in them; None if it is none of them."""
    ranks = several[0].groups.alike
    total, index = sum(held.local.numel() for held in several), ranks.index(rank)
    size = _size_of_parts(part.numel(), total, len(ranks), index)
    if not size or len(ranks) == 1 == len(several):
        return None
    found, begin, first = [], 0, index * size
    for held in several:
        end = begin + held.local.numel()
        low, high = max(begin, first), min(end, first + size)
        if low < high:
            found.append((held, low - begin, high - low, low - first))
        begin = end
    flat = part.detach().reshape(-1)
    return found if all(_is_copy(flat, *piece) for piece in found) else None


def _size_of_parts(count, total, ranks, index) -> int:
    """Of equal parts of `total` elements, one of which has `count` of them; 0 if it can be none.
    The last one is padded, or has less."""
    padding = count * ranks - total
    if 0 <= padding < count or count == -(-total // ranks):
        return count
    rest, others = total - count, ranks - 1
    is_last = index == others and others and rest % others == 0 and count <= rest // others
    return rest // others if is_last else 0


def _is_copy(flat, held, begin, length, at) -> bool:
    own = held.local.detach().reshape(-1)[begin : begin + length]
    return _alike(flat[at : at + length], own)


def _alike(values, own) -> bool:
    return own.device == values.device and torch.equal(values.to(own.dtype), own)


@dataclasses.dataclass
class _Search:
    """Where a part lies: from some element of a parameter on, then all of later ones, some of which
    it may leave out, the last one cut where the part ends, or padded."""

    flat: torch.Tensor
    left: list
    taken: set

    def __post_init__(self):
        self._dead = set()  # (where in the part, parameter) from which nothing leads to its end
        self._left = [held for held in self.left if id(held.owner) not in self.taken]

    def first(self, after):
        """None if it lies nowhere. after: a parameter, or None. Those after it come first: of some
        that have the same shape and values, as norms of ones, an optimizer has each in its turn."""
        if not self.flat.numel():
            return []
        number_after = next((i for i, held in enumerate(self.left) if held is after), -1)
        later = {id(held) for held in self.left[number_after + 1 :]}
        order = sorted(enumerate(self._left), key=lambda each: id(each[1]) not in later)
        for number, held in order:
            for begin in _places(self.flat, held.local.detach().reshape(-1)):
                pieces = self._from(number, begin, 0)
                if pieces is not None:
                    return pieces
        return None

    def _from(self, number, begin, at):
        """The pieces from `at` on, the first of which begins in that parameter; None if there are
        none."""
        held = self._left[number]
        length = min(held.local.numel() - begin, self.flat.numel() - at)
        piece = (held, begin, length, at)
        if not length or not _is_copy(self.flat, *piece):
            return None
        end = at + length
        if end == self.flat.numel():
            return [piece]
        for later in range(number + 1, len(self._left)):
            if (end, later) in self._dead:
                continue
            rest = self._from(later, 0, end)
            if rest is not None:
                return [piece, *rest]
            self._dead.add((end, later))
        return [piece] if not self.flat[end:].count_nonzero() else None


def _places(flat, own) -> list[int]:
    """Where in `own` the values of `flat` may begin."""
    if flat.device != own.device or not own.numel():
        return []
    flat = flat[:_PROBES].to(own.dtype)
    found = (own == flat[0]).nonzero().reshape(-1)
    for number in range(1, flat.numel()):
        at = found + number
        is_beyond = at >= own.numel()
        found = found[is_beyond | (own[at.clamp(max=own.numel() - 1)] == flat[number])]
    return found[:_PLACES].tolist()
