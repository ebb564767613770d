"""Codes and scales as a trainer makes them of its parts, held against the plain way on a whole
weight."""

import dataclasses
import itertools

import pytest
import torch

from shardproof import Scaled, engines
from shardproof._digests._digest import add, digest_runs
from shardproof._holdings._holding import Holding
from shardproof._holdings._layout import Placement, Run, local_runs
from shardproof._judging._transport import Transport
from shardproof._syncs._scaled import Blocks, largest_of_all
from shardproof._syncs._seal import seal


def plainly(weight, block, largest, to_codes):
    """(codes, scales) of a matrix. Padded to whole blocks, as engines do it."""
    rows, columns = weight.shape
    height, width = (size if each == -1 else each for each, size in zip(block, weight.shape))
    padded = torch.zeros(-(-rows // height) * height, -(-columns // width) * width)
    padded[:rows, :columns] = weight
    blocks = padded.view(-1, height, padded.shape[1] // width, width)
    scales = blocks.abs().amax((1, 3), keepdim=True).clamp(min=1e-10) / largest
    codes = to_codes(blocks, scales).view_as(padded)[:rows, :columns]
    return codes.contiguous(), scales[:, 0, :, 0]


def fp8(values, scales):
    return (values * (1.0 / scales)).clamp(-448, 448).to(torch.float8_e4m3fn)


def int8(values, scales):
    return (values / scales).round().clamp(-128, 127).to(torch.int8)


def held(weight, runs=None, local=None):
    local = weight if local is None else local
    runs = local_runs(weight.shape) if runs is None else runs
    return Holding("w", "parameter", weight.dtype, tuple(weight.shape), local, runs, weight)


def quantised(holding, to):
    blocks = Blocks(holding, to)
    return blocks.quantised(blocks.shared())


def whole_of(holding):
    """Its runs put in their places."""
    found = torch.full(holding.shape, torch.nan).reshape(-1)
    for run, i in ((each, i) for each in holding.runs for i in range(each.count)):
        at, local = run.start + i * run.stride, run.local_start + i * run.local_stride
        found[at : at + run.length] = holding.local[local : local + run.length]
    return found.view(holding.shape)


@pytest.mark.parametrize("to, largest, to_codes", [
    (dataclasses.replace(engines.FP8_BLOCKS, block=(4, 3)), 448, fp8),
    (dataclasses.replace(engines.FP8_TENSOR, block=(-1, -1)), 448, fp8),
    (engines.INT8_ROWS, 127, int8),
])  # fmt: skip
def test_a_whole_weight_is_quantised_as_engines_do_it(to, largest, to_codes):
    torch.manual_seed(0)
    weight = torch.randn(10, 7, dtype=torch.bfloat16)
    codes, scales = quantised(held(weight), to)
    expected = plainly(weight.float(), to.block, largest, to_codes)
    assert torch.equal(codes.local.view(torch.uint8).view(10, 7), expected[0].view(torch.uint8))
    assert torch.equal(whole_of(scales), expected[1])
    assert (codes.name, scales.name) == ("w", "w" + to.suffixes[1])


def test_fp4_takes_the_nearest_code_and_of_two_the_even_one():
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    points = torch.cat([values, (values[1:] + values[:-1]) / 2, torch.linspace(0, 6, 17)])
    weight = torch.cat([points, -points]).view(1, -1)
    codes, scales = quantised(held(weight), dataclasses.replace(engines.MXFP4, block=(1, -1)))
    assert scales.local.float().tolist() == [1.0] and codes.shape == (1, weight.shape[1] // 2)
    halves = torch.stack([codes.local & 15, codes.local >> 4], -1).reshape(-1).long()
    found = values[halves & 7] * torch.where(halves > 7, -1.0, 1.0)
    nearest = (weight.view(-1, 1).abs() - values).abs()
    assert torch.equal((weight.view(-1) - found).abs(), nearest.amin(1))
    is_tie = (nearest == nearest.amin(1, keepdim=True)).sum(1) > 1
    assert is_tie.any() and not (halves[is_tie] % 2).any()


@pytest.mark.parametrize("magnitude, scale", [(6, 1), (4, 1), (3.99, 0.5), (8, 2), (0, 2.0**-127)])
def test_scales_that_are_powers_of_two(magnitude, scale):
    found = engines.MXFP4.scales_of(torch.tensor([float(magnitude)]))
    assert found.float().tolist() == [scale]


def parts_of(weight, cut):
    """Of 3 ranks: (runs, local memory)."""
    for rank in range(3):
        if cut == "flat":  # in the middle of rows
            size = -(-weight.numel() // 3)
            low, high = rank * size, min(weight.numel(), (rank + 1) * size)
            yield [Run(low, high - low)], weight.reshape(-1)[low:high]
            continue
        placement = Placement("shard", cut)
        part = weight.chunk(3, cut)[rank].contiguous()
        yield local_runs(weight.shape, [placement], [3], [rank]), part


SCALES = [
    Scaled(torch.float8_e4m3fn, (4, 3)), Scaled(torch.int8, (1, -1)), Scaled(torch.int8, (-1, 1)),
    Scaled(torch.float8_e4m3fn, None), dataclasses.replace(engines.MXFP4, block=(1, 4)),
]  # fmt: skip


@pytest.mark.parametrize("shape, cut, to", [
    (shape, cut, to)
    for shape, to in itertools.product([(12, 12), (10, 14), (3, 5, 12)], SCALES)
    for cut in (*range(len(shape)), "flat")
], ids=str)  # fmt: skip
def test_parts_come_to_what_the_whole_does(shape, cut, to):
    torch.manual_seed(1)
    weight = torch.randn(shape)
    parts = [held(weight, *part) for part in parts_of(weight, cut)]
    blocks = [Blocks(part, to) for part in parts]
    largest = {}
    for each in blocks:
        for number, value in zip(*each.shared(), strict=True):
            largest[number] = max(value, largest.get(number, 0))
    made = []
    for each in blocks:
        numbers, values = each.shared()
        values[:] = type(values)("f", [largest[number] for number in numbers])
        try:
            made.append(each.quantised((numbers, values)))
        except ValueError as error:
            assert to.per_byte == 2 and "would lie on two ranks" in str(error)
            return
    for own, whole in zip(zip(*made), quantised(held(weight), to), strict=True):
        total = (0, 0)
        for part in own:
            total = add(total, digest_runs(part.local, part.runs).digest)
        assert total == digest_runs(whole.local, whole.runs).digest
        assert sum(part.local.numel() for part in own) == whole.local.numel()


def test_the_largest_of_all_ranks_comes_back():
    own = Blocks(held(torch.ones(2, 2), [Run(0, 1)], torch.ones(1)), Scaled(torch.int8, None))
    found = largest_of_all({"w": own.shared()}, Transport(5.0))
    assert [each.tolist() for each in found["w"]] == [[0], [1.0]]


@pytest.mark.parametrize("cast, error, said", [
    ({"*": engines.INT8_ROWS}, RuntimeError, "bias: a weight of 2 dims"),
    ({"weight": "fp8"}, RuntimeError, "cast: expected a dtype, a Scaled"),
    ({"weight": (engines.INT8_ROWS, torch.bfloat16)}, RuntimeError, "cast: expected a dtype"),
])  # fmt: skip
def test_what_cannot_be_quantised_is_refused_in_a_line(cast, error, said):
    with pytest.raises(error, match=said):
        seal(torch.nn.Linear(4, 2), cast=cast)


def test_no_such_scales():
    with pytest.raises(ValueError, match="expected codes of .* NVFP4, GPTQ and AWQ cannot"):
        Scaled(torch.float16)
    with pytest.raises(ValueError, match="block is"):
        Scaled(torch.int8, (0, 4))
