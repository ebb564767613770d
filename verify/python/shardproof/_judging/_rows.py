"""The digests of a model's memory, read once more: where it lies, and what each stretch of it is a
part of, is known from the time before. All of it is read in one call of the op."""

import array
import dataclasses

import torch

from .._digests import _digest, _together
from .._holdings._holding import Holding
from .._holdings._layout import Run
from .._holdings._unchanged import Look, Unplain

_CAST_BYTES = 1 << 25  # that are made at a time, or one tensor


@dataclasses.dataclass
class _Cast:
    """Tensors of one device that are digested as they are after a cast. tensors: (number of the
    memory, dtype), each made once. made: of each row which of them it is of."""

    device: torch.device
    tensors: list[tuple[int, torch.dtype]] = dataclasses.field(default_factory=list)
    made: list[int] = dataclasses.field(default_factory=list)
    table: _together.Table = dataclasses.field(default_factory=_together.Table)
    nbytes: int = 0

    def read(self, look: Look) -> torch.Tensor:
        made = [look.locals[number].detach().to(dtype) for number, dtype in self.tensors]
        return self.table.digest([made[at] for at in self.made])


@dataclasses.dataclass
class _Odd:
    """A view that the op does not read where it lies. tensor: the number of its memory."""

    tensor: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    runs: list[Run]


class Rows:
    """Made by Builder. A row is what one stretch or view of a tensor's memory adds up to."""

    def __init__(self, devices, casts, odd, finite: torch.Tensor, before: torch.Tensor):
        """devices: {device: (numbers of tensors, Table)}; casts: list of _Cast; odd: of _Odd; the
        rows are in this order. finite: of which rows NaN and Inf were looked for, and before: the
        digests that they had then."""
        self._devices, self._casts, self._odd = devices, casts, odd
        self._finite, self._before = finite, before

    def read(self, look: Look) -> torch.Tensor | None:
        """\\returns the digests, int64 [rows, 2]; None if they say nothing, since a value is NaN or
        Inf and was not so before, or something was changed meanwhile, or one cannot be read so any
        more."""
        before, found = look.versions(), []
        reads = [(device, numbers[0]) for device, (numbers, _) in self._devices.items()]
        reads += [(each.device, each.tensors[0][0]) for each in self._casts]
        for device, number in reads:
            if device.type != "cpu" and not _digest.is_on_gpu(look.locals[number]):
                return None
        for numbers, table in self._devices.values():
            tensors = [look.locals[number] for number in numbers]
            found.append(table.digest(tensors).cpu()[:, :4])
        found += [each.cpu()[:, :4] for each in [cast.read(look) for cast in self._casts]]
        found += [self._read_odd(each, look) for each in self._odd]
        rows = torch.cat(found) if found else torch.zeros(0, 4, dtype=torch.int64)
        found = self._finite & rows[:, 2:].any(1)  # as in a mask, which was right and still is
        if not torch.equal(rows[found, :2], self._before[found]) or look.versions() != before:
            return None
        return rows[:, :2]

    def _read_odd(self, odd: _Odd, look: Look) -> torch.Tensor:
        local = look.locals[odd.tensor].detach()
        data = local.as_strided(odd.size, odd.stride, local.storage_offset() + odd.offset)
        summary = _digest.digest_runs(data, odd.runs)
        numbers = array.array("Q", (*summary.digest, summary.nan_count, summary.inf_count))
        return torch.frombuffer(numbers, dtype=torch.int64).view(1, 4)


class Builder:
    """Takes what was read, and where that lies in the tensors of a look at the same model."""

    def __init__(self, look: Look):
        self._look = look
        self._numbers = {id(owner): number for number, owner in enumerate(look.owners)}
        self._added: list[tuple] = []

    def add(self, held: Holding, data: torch.Tensor, runs, digest, finite=False, cast=None) -> int:
        """data: held.local, or a view of it. digest: what was found. cast: a dtype that all of
        held.local is cast to before it is digested. \\returns the row's number, which `rows`
        changes. \\raises Unplain if it is none of the look's."""
        number = self._numbers.get(id(held.owner))
        if number is None or not _is_same(held.local, self._look.locals[number]):
            raise Unplain
        if cast is not None and not (
            data is held.local and _is_read_in_place(data, cast) and data.is_contiguous()
        ):
            raise Unplain
        self._added.append((number, data, runs, finite, digest, cast))
        return len(self._added) - 1

    def rows(self) -> tuple[Rows, list[int]]:
        """\\returns also where each row has come to be."""
        groups: dict[torch.device, list[int]] = {}
        cast: dict[torch.device, list[int]] = {}
        odd = []
        for row, (number, data, *_, to) in enumerate(self._added):
            if to is not None:
                cast.setdefault(data.device, []).append(row)
            elif _is_stretch(data, self._look.locals[number]):
                groups.setdefault(data.device, []).append(row)
            else:
                odd.append(row)
        order = [row for some in (groups, cast) for rows in some.values() for row in rows] + odd
        devices = {device: self._table(rows) for device, rows in groups.items()}
        casts = [each for rows in cast.values() for each in self._casts(rows)]
        finite = torch.tensor([self._added[row][3] for row in order], dtype=torch.bool)
        before = array.array("Q", (lane for row in order for lane in self._added[row][4]))
        places = [0] * len(order)
        for place, row in enumerate(order):
            places[row] = place
        views = [self._odd(row) for row in odd]
        return Rows(devices, casts, views, finite, _digest.digests_of(before)), places

    def _table(self, rows):
        table, numbers = _together.Table(), []
        for row in rows:
            number, data, runs, *_ = self._added[row]
            begin = data.data_ptr() - self._look.locals[number].data_ptr() if runs else 0
            table.add(runs, data.element_size(), _digest.FLOAT_FORMATS.get(data.dtype, 0), begin)
            numbers.append(number)
        return numbers, table

    def _casts(self, rows):
        found: list[_Cast] = []
        for row in rows:
            number, data, runs, *_, dtype = self._added[row]
            is_last = bool(found) and found[-1].tensors[-1] == (number, dtype)
            nbytes = 0 if is_last else data.numel() * dtype.itemsize
            if not found or (nbytes and found[-1].nbytes + nbytes > _CAST_BYTES):
                found.append(_Cast(data.device))
            cast = found[-1]
            if not is_last:
                cast.tensors.append((number, dtype))
                cast.nbytes += nbytes
            cast.made.append(len(cast.tensors) - 1)
            cast.table.add(runs, dtype.itemsize, _digest.FLOAT_FORMATS.get(dtype, 0))
        return found

    def _odd(self, row) -> _Odd:
        number, data, runs, *_ = self._added[row]
        local = self._look.locals[number]
        if data.dtype != local.dtype or not _share_storage(data, local):
            raise Unplain
        offset = data.storage_offset() - local.storage_offset()
        return _Odd(number, tuple(data.shape), data.stride(), offset, runs)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.data_ptr(), one.shape, one.stride(), one.dtype) == (
        other.data_ptr(), other.shape, other.stride(), other.dtype,
    )  # fmt: skip


def _share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _is_stretch(data: torch.Tensor, local: torch.Tensor) -> bool:
    """Whether the op can be given the tensor for it."""
    if not (data.is_contiguous() and local.is_contiguous() and _share_storage(data, local)):
        return False
    return _is_read_in_place(data, data.dtype)


def _is_read_in_place(data: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the op reads values of this dtype on the device of data."""
    on_host = data.device.type == "cpu" and _digest.has_op()
    return dtype not in _digest.ONE_NAN and (on_host or _digest.is_on_gpu(data))
