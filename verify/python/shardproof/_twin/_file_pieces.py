"""Where in the files of a checkpoint the tensors of a model lie that no key of their name holds.

Found by their bytes, so that no table of a framework's conversions is needed: fused projections,
packed experts, parts of a fused tensor, other names. What is found here is only a claim; the
verifier's own reader reads the pieces again and holds them against the model.
"""

import itertools
import re

import torch

_HEAD = 16  # elements
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pieces_of(tensors, read, keys) -> dict[str, list[dict]]:
    """{name: [{"key", "start", "count"}]}: elements of keys that make up the tensor, one after the
    other in row-major order.

    tensors: holdings to look for. read(key): that tensor of the files. keys: which to look in.
    """
    files = _Files(read, keys)
    found = {}
    for held in tensors:
        if held.local is None or held.is_meta or not held.local.numel():
            continue
        flat = held.local.contiguous().reshape(-1)
        pieces = files.joined(flat, held.name) or files.slice_with(flat)
        if pieces:
            found[held.name] = pieces
    return found


def _natural(key: str) -> list:
    """So that layer 2 comes before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", key)]


def _like(key: str, name: str) -> int:
    """How many of their last parts are the same."""
    pairs = zip(reversed(key.split(".")), reversed(name.split(".")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


class _Files:
    def __init__(self, read, keys):
        self._read = read
        self._left = sorted(keys, key=_natural)
        self._tensors: dict[tuple, torch.Tensor] = {}
        self._by_head: dict[torch.dtype, dict[bytes, list[str]]] = {}

    def joined(self, flat, name) -> list[dict]:
        """Whole keys whose values, one after the other, are the tensor's; each is used once. Of
        keys with equal values the one whose name is most like the tensor's."""
        found, at = [], 0
        while at < flat.numel():
            rest = flat[at:]
            taken = {piece["key"] for piece in found}
            begin = [key for key in self._beginning(rest) if key not in taken]
            if not begin:
                return []
            key = max(begin, key=lambda each: _like(each, name))
            count = self._flat(key, flat.dtype).numel()
            found.append({"key": key, "start": 0, "count": count})
            at += count
        for piece in found:
            self._left.remove(piece["key"])
        return found

    def slice_with(self, flat) -> list[dict]:
        """The one key that has the tensor somewhere in it."""
        if flat.numel() < _HEAD:  # too little to be told from chance
            return []
        wanted, width = _bytes(flat), flat.element_size()
        for key in self._left:
            whole = self._flat(key, flat.dtype)
            if whole is None or whole.numel() <= flat.numel():
                continue
            data = _bytes(whole)
            at = data.find(wanted)
            while at >= 0 and at % width:
                at = data.find(wanted, at + 1)
            if at >= 0:
                return [{"key": key, "start": at // width, "count": flat.numel()}]
        return []

    def _beginning(self, flat):
        """The keys that the tensor begins with."""
        dtype = flat.dtype
        if dtype not in self._by_head:
            heads = self._by_head[dtype] = {}
            for key in self._left:
                whole = self._flat(key, dtype)
                if whole is not None:
                    heads.setdefault(_bytes(whole[:1]), []).append(key)
        for key in self._by_head[dtype].get(_bytes(flat[:1]), []):
            whole = self._flat(key, dtype)
            if key in self._left and whole.numel() <= flat.numel() and _same(whole, flat):
                yield key

    def _flat(self, key, dtype):
        """The values of a key as the model would hold them; None if it would not."""
        if (key, dtype) not in self._tensors:
            value = self._read(key)
            is_cast = value.dtype.is_floating_point and dtype.is_floating_point
            fits = value.numel() and (is_cast or value.dtype == dtype)
            self._tensors[key, dtype] = value.to(dtype).reshape(-1) if fits else None
        return self._tensors[key, dtype]


def _bits(flat):
    """NaN equals itself as an integer only."""
    as_integer = _INTEGERS.get(flat.element_size())
    return flat.view(as_integer) if as_integer else flat


def _same(part, flat) -> bool:
    return torch.equal(_bits(part), _bits(flat[: part.numel()]))


def _bytes(flat) -> bytes:
    return flat.contiguous().view(torch.uint8).numpy().tobytes()
