"""Weights as an engine quantises them: codes, and a scale for each block of them. Each rank makes
those of its part; of blocks that ranks share they tell each other the largest magnitude."""

import array
import dataclasses
import itertools
import math
import pickle

import torch

from .._holdings._holding import Holding
from .._holdings._layout import Run

_E8M0 = torch.float8_e8m0fnu
# Numbers of blocks, and the largest magnitude in each; travels.
Shared = tuple[array.array, array.array]
_LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0, torch.uint8: 6.0}


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A weight that is kept as codes, which are to be multiplied by their block's scale.

    dtype: of the codes: float8_e4m3fn, int8, or uint8 for two FP4 (E2M1) in a byte, the low half
    first. block: rows and columns that share a scale, -1 for all; None: a scale for each matrix.
    suffixes: what the names of codes and of scales add to the weight's. scale: float32, or
    float8_e8m0fnu for powers of two. largest: what the block's largest magnitude is to become,
    unless scales are powers of two; least: what that magnitude is taken for if it is less.
    divides: codes are value / scale, else value * (1 / scale), which rounds otherwise.
    """

    dtype: torch.dtype
    block: tuple[int, int] | None = (-1, -1)
    suffixes: tuple[str, str] = ("", "_scale")
    scale: torch.dtype = torch.float32
    largest: float | None = None
    least: float = 1e-10
    divides: bool = True

    def __post_init__(self):
        if self.dtype not in _LARGEST or self.scale not in (torch.float32, _E8M0):
            raise ValueError(
                f"codes of {self.dtype} with scales of {self.scale}: expected codes of "
                "float8_e4m3fn, int8 or uint8 (two FP4) and scales of float32 or float8_e8m0fnu; "
                "NVFP4, GPTQ and AWQ cannot be described: leave such weights out by the map"
            )
        if self.block is not None and any(size < 1 and size != -1 for size in self.block):
            raise ValueError(f"block is {self.block}: expected sizes, or -1 for all")

    @property
    def per_byte(self) -> int:
        return 2 if self.dtype == torch.uint8 else 1

    def scales_of(self, magnitudes: torch.Tensor) -> torch.Tensor:
        """magnitudes: the largest ones of blocks, float32."""
        if self.scale == torch.float32:
            return magnitudes.clamp(min=self.least) / (self.largest or _LARGEST[self.dtype])
        # The largest power of two that is no larger than the magnitude becomes that of the codes.
        room = math.frexp(_LARGEST[self.dtype])[1] - 1
        exponents = torch.frexp(magnitudes)[1] - 1 - room
        exponents = torch.where(magnitudes == 0, -127, exponents).clamp(-127, 127)
        return (exponents + 127).to(torch.uint8).view(_E8M0)

    def codes_of(self, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """A code for each value, float32, whose scale is beside it."""
        found = values / scales if self.divides else values * (1 / scales)
        if self.dtype == torch.float8_e4m3fn:
            return found.clamp(-448, 448).to(self.dtype)
        if self.dtype == torch.int8:
            return found.round().clamp(-128, 127).to(self.dtype)
        size = found.abs()  # halfway between two codes the even one is taken
        codes = (size > 0.25).to(torch.uint8)
        for limit in (1.25, 2.5, 5.0):
            codes += size > limit
        for limit in (0.75, 1.75, 3.5):
            codes += size >= limit
        return codes | torch.signbit(found).to(torch.uint8) << 3


class Blocks:
    """The blocks of a weight of which this rank has elements. They have numbers, in the order of
    the scales."""

    def __init__(self, held: Holding, to: Scaled):
        """\\raises ValueError if it has no blocks."""
        if len(held.shape) < 2:
            raise ValueError(f"{held.name}: a weight of 2 dims is quantised, not {held.shape}")
        self.held, self.to = held, to
        *lead, self._rows, self._columns = held.shape
        block = to.block or (-1, -1)
        self._height, self._width = (
            max(1, size if each == -1 else each) for each, size in zip(block, held.shape[-2:])
        )
        self._down = -(-self._rows // self._height)
        self._across = -(-self._columns // self._width)
        self.shape = (*lead, self._down, self._across) if to.block else (*lead,)
        self._flat = held.local.detach().reshape(-1)
        self._parts = [part for run in held.runs for part in self._cut(run)]

    def shared(self, dtype: torch.dtype | None = None) -> Shared:
        """Of those that this rank does not have all of. dtype: that the values are cast to before
        they are quantised, if they are."""
        counts = torch.zeros(math.prod(self.shape), dtype=torch.int64)
        for part in self._parts:
            counts[part.numbers(self._across)] += part.view[1] * part.view[3]
        down, across = torch.arange(self._down), torch.arange(self._across)
        heights = (self._rows - down * self._height).clamp(max=self._height)
        widths = (self._columns - across * self._width).clamp(max=self._width)
        sizes = (heights.unsqueeze(1) * widths).reshape(-1)
        matrices = len(counts) // max(1, len(sizes))
        some = ((counts > 0) & (counts < sizes.repeat(matrices))).nonzero().reshape(-1)
        largest = self._magnitudes(dtype)[some] if len(some) else some
        return array.array("q", some.tolist()), array.array("f", largest.tolist())

    def quantised(self, known: Shared) -> list[Holding]:
        """Codes and scales as holdings. known: as `shared`, of all ranks. The rank that has a
        block's first element has its scale."""
        magnitudes = self._magnitudes()
        numbers, largest = (each.tolist() for each in known)
        magnitudes[torch.tensor(numbers, dtype=torch.int64)] = torch.tensor(largest)
        scales = self.to.scales_of(magnitudes)
        codes = torch.empty(len(self._flat), dtype=self.to.dtype, device=self._flat.device)
        own, runs, at = [], [], 0
        for part in self._parts:
            numbers = part.numbers(self._across)
            some = scales[numbers].view(part.view[0], 1, part.view[2], 1)
            values = part.of(self._flat).float()
            part.of(codes).copy_(self.to.codes_of(values, some.float().to(values.device)))
            if not part.is_first:
                continue
            own.append(scales[numbers])
            runs.append(Run(int(numbers[0]), part.view[2], part.view[0],
                            self._across if part.view[0] > 1 else 0, at,
                            part.view[2] if part.view[0] > 1 else 0))  # fmt: skip
            at += len(numbers)
        scales = torch.cat(own) if own else scales[:0]
        of_codes, of_scales = (self.held.name + each for each in self.to.suffixes)
        return [
            self._holding(of_codes, *self._packed(codes)),
            self._holding(of_scales, scales, self.shape, runs),
        ]

    def _packed(self, codes):
        """(memory, shape, runs) of the codes."""
        shape, runs = self.held.shape, self.held.runs
        if self.to.per_byte == 1:
            return codes, shape, runs
        halves = [
            dataclasses.replace(run, **{field: value // 2 for field, value in _numbers(run)})
            for run in runs
        ]
        if shape[-1] % 2 or any(value % 2 for run in runs for _, value in _numbers(run)):
            raise ValueError(f"{self.held.name}: a byte of its codes would lie on two ranks")
        pairs = codes.view(-1, 2)
        return pairs[:, 0] | pairs[:, 1] << 4, (*shape[:-1], shape[-1] // 2), halves

    def _holding(self, name, local, shape, runs) -> Holding:
        return dataclasses.replace(
            self.held, name=name, dtype=local.dtype, shape=tuple(shape), local=local,
            runs=list(runs), placements=[], owner=local,
        )  # fmt: skip

    def _magnitudes(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Of all blocks, float32, on the CPU; 0 where this rank has nothing. A cast keeps the order
        of values, so that it is enough to cast the largest one."""
        found = torch.zeros(math.prod(self.shape))
        for part in self._parts:
            values = part.of(self._flat)
            values = values if values.element_size() > 1 else values.float()
            largest = torch.maximum(values.amax((1, 3)), -values.amin((1, 3)))
            numbers = part.numbers(self._across)
            largest = largest.reshape(-1).to(dtype or largest.dtype).float().cpu()
            found[numbers] = found[numbers].maximum(largest)
        return found

    def _cut(self, run: Run):
        """The parts of a run: rows and columns of a matrix, each within blocks or of whole ones."""
        width = self._columns
        if run.count > 1 and run.stride == width and run.start % width + run.length <= width:
            yield from self._boxes(run.start, run.length, run.count,
                                   run.local_start, run.local_stride)  # fmt: skip
            return
        for i in range(run.count):
            at, local = run.start + i * run.stride, run.local_start + i * run.local_stride
            end = at + run.length
            # What is left of a row, whole rows, the beginning of a row.
            for low, high in _at_edges(at, end, width):
                length = min(width, high - low)
                count = (high - low) // length
                yield from self._boxes(low, length, count, local + low - at, length)

    def _boxes(self, start, length, count, local, local_stride):
        first, column = divmod(start, self._columns)
        for matrix in range(first // self._rows, -(-(first + count) // self._rows)):
            before = matrix * self._rows
            low, high = max(first, before), min(first + count, before + self._rows)
            for rows in _at_edges(low - before, high - before, self._height):
                for columns in _at_edges(column, column + length, self._width):
                    skipped = (before + rows[0] - first) * local_stride
                    at = local + skipped + columns[0] - column
                    yield self._part(matrix, rows, columns, at, local_stride)

    def _part(self, matrix, rows, columns, local, local_stride) -> "_Part":
        height, width = (
            min(size, high - low)
            for (low, high), size in ((rows, self._height), (columns, self._width))
        )
        down, across = ((high - low) // each for (low, high), each in
                        ((rows, height), (columns, width)))  # fmt: skip
        number = (matrix * self._down + rows[0] // self._height) * self._across
        is_first = rows[0] % self._height == 0 and columns[0] % self._width == 0
        strides = (height * local_stride, local_stride, width, 1)
        view = (down, height, across, width)
        return _Part(number + columns[0] // self._width, is_first, view, strides, local)


@dataclasses.dataclass(frozen=True)
class _Part:
    """Blocks side by side, or a part of one. number: of the first of them; is_first: whether it has
    their first elements. view: how many down, rows of each, how many across, columns of each."""

    number: int
    is_first: bool
    view: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    local: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.as_strided(self.view, self.strides, flat.storage_offset() + self.local)

    def numbers(self, across: int) -> torch.Tensor:
        rows = torch.arange(self.view[0]).unsqueeze(1) * across
        return (self.number + rows + torch.arange(self.view[2])).reshape(-1)


def _at_edges(low, high, step):
    """[low, high) cut where whole steps begin and end."""
    edges = {low, min(high, -(-low // step) * step), max(low, high // step * step), high}
    return itertools.pairwise(sorted(edges))


def _numbers(run: Run):
    """Of a run that stands alone, the strides do not matter."""
    single = run.count == 1
    for field in dataclasses.fields(run):
        if field.name != "count" and not (single and field.name.endswith("stride")):
            yield field.name, getattr(run, field.name)


def largest_of_all(own: dict[str, Shared] | None, transport) -> dict[str, Shared] | None:
    """own: of each weight; None if this rank has failed. \\returns the same numbers, with the
    largest magnitudes over all ranks; None if any has failed."""
    received = transport.to_judges(own)
    if received is None:
        return None
    largest: dict[tuple[str, int], float] = {}
    for of_rank in received:
        for name, (numbers, values) in of_rank.items():
            for number, value in zip(numbers, values, strict=True):
                largest[name, number] = max(value, largest.get((name, number), 0.0))
    answers = [
        pickle.dumps({name: (numbers, array.array("f", [largest[name, each] for each in numbers]))
                      for name, (numbers, _) in of_rank.items()})
        for of_rank in received
    ]  # fmt: skip
    found: dict[str, Shared] = {}
    for each in transport.exchange(answers):
        found |= pickle.loads(each)
    return found
