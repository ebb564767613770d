"""Against src/digest/vectors.json, which plain integers made; by the built op and without it."""

import json
import math
from pathlib import Path

import pytest
import torch

from shardproof._digests import _digest
from shardproof._digests._digest import Summary, add, coverage, digest_runs, first_non_finite
from shardproof._holdings._layout import Placement, Run, local_runs

VECTORS = json.loads(
    (Path(__file__).parents[4] / "src/digest/vectors.json").read_text(encoding="utf-8")
)["vectors"]
# What starts beyond that is for those who count in 64 bits without a sign.
START_MAX = 1 << 62


@pytest.fixture(autouse=True, params=["plain", "op"])
def way(request, monkeypatch):
    """Each test twice: by plain PyTorch, and by the op where SHARDPROOF_DIGEST_OP names it."""
    if request.param == "op" and not _digest.has_op():
        pytest.skip("torch.ops.shardproof.digest is not built")
    monkeypatch.setattr(_digest, "_has_op", request.param == "op")


def bytes_of(data, run):
    """The bytes of a run, as vectors.json says what they are."""
    positions = [
        run["global_start"] + i * run["global_stride"] + k
        for i in range(run["count"])
        for k in range(run["length"])
    ]
    if data["kind"] == "formula":
        return [((p * 2654435761 + data["seed"]) % 2**32) >> 24 for p in positions]
    return [data["byte"]] * len(positions)


def local_of(vector):
    """(memory, runs): the bytes of all runs, one behind the other."""
    memory, runs = [], []
    for run in vector["runs"]:
        runs.append(
            Run(
                run["global_start"],
                run["length"],
                run["count"],
                run["global_stride"],
                len(memory),
                run["length"],
            )
        )
        if vector["data"]["kind"] != "hex":
            memory += bytes_of(vector["data"], run)
    if vector["data"]["kind"] == "hex":
        memory = list(bytes.fromhex(vector["data"]["hex"]))
    return torch.tensor(memory, dtype=torch.uint8), runs


USED = [v for v in VECTORS if all(run["global_start"] < START_MAX for run in v["runs"])]


def test_nearly_all_vectors_are_used():
    assert len(VECTORS) - len(USED) == 1


@pytest.mark.parametrize("vector", USED, ids=lambda vector: vector["name"])
def test_vectors(vector):
    local, runs = local_of(vector)
    assert digest_runs(local, runs).hex() == vector["digest"]
    assert _digest.hex_of(coverage(runs, 1)) == vector["coverage"]


def whole(tensor):
    return digest_runs(tensor, local_runs(tensor.shape)).digest


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64])
def test_shards_add_up_to_the_whole_whatever_the_cut(dim, dtype):
    tensor = (torch.rand(37, 300, generator=torch.Generator().manual_seed(1)) * 200 - 100).to(dtype)
    placements, total, covered = [Placement("shard", dim)], (0, 0), (0, 0)
    for rank, part in enumerate(tensor.chunk(4, dim)):
        runs = local_runs(tensor.shape, placements, (4,), (rank,))
        total = add(total, digest_runs(part.clone(), runs).digest)
        covered = add(covered, coverage(runs, tensor.element_size()))
    assert total == whole(tensor)
    assert covered == coverage(local_runs(tensor.shape), tensor.element_size())


def test_one_bit_and_two_elements_that_change_places_show():
    tensor = torch.arange(5000, dtype=torch.int32)
    flipped, swapped = tensor.clone(), tensor.clone()
    flipped[4321] ^= 1 << 17
    swapped[[7, 8]] = swapped[[8, 7]]
    assert len({whole(tensor), whole(flipped), whole(swapped)}) == 3


def test_a_gap_and_an_overlap_show_in_the_coverage():
    full = coverage([Run(0, 100)], 4)
    assert add(coverage([Run(0, 50)], 4), coverage([Run(51, 49)], 4)) != full
    assert add(coverage([Run(0, 51)], 4), coverage([Run(50, 50)], 4)) != full
    assert add(coverage([Run(0, 50)], 4), coverage([Run(50, 50)], 4)) == full


def test_how_the_memory_lies_does_not_matter():
    tensor = torch.arange(600, dtype=torch.float32).reshape(20, 30)
    columns_first = tensor.t().contiguous().t()
    assert not columns_first.is_contiguous()
    assert whole(columns_first) == whole(tensor)


@pytest.mark.parametrize("runs", [[Run(0, 12)], [Run(1, 3, 4, 5, 0, 3)]])
def test_a_slice_of_more_memory_is_what_is_looked_at(runs):
    more = torch.randn(30)
    more[18 + 7] = math.nan
    part = more[18:]
    assert digest_runs(part, runs).digest == digest_runs(part.clone(), runs).digest
    assert first_non_finite(part, runs) == first_non_finite(part.clone(), runs) is not None


def test_a_transposed_tensor_in_pieces(monkeypatch):
    tensor = torch.arange(6000, dtype=torch.float32).reshape(60, 100)
    monkeypatch.setattr(_digest, "_CHUNK_BYTES", 4096)
    assert whole(tensor.t().contiguous().t()) == whole(tensor)


def test_a_first_dim_of_one_does_not_make_a_piece_of_all(monkeypatch):
    tensor = torch.arange(6000, dtype=torch.float32).reshape(1, 1, 60, 100)
    monkeypatch.setattr(_digest, "_CHUNK_BYTES", 4096)
    cut = tensor.transpose(2, 3).contiguous().transpose(2, 3)
    pieces = list(_digest._contiguous_parts(cut, local_runs(cut.shape)))
    assert len(pieces) == 6 and max(part.nbytes for part, _ in pieces) <= 4096
    assert whole(cut) == whole(tensor)


def test_blocks_add_up_to_the_digest_and_the_one_that_changed_is_known():
    tensor = torch.arange(8192, dtype=torch.int32)  # 8 blocks of 4 KiB
    changed = tensor.clone()
    changed[5 * 1024 + 3] = -1
    a, b = (digest_runs(t, local_runs(t.shape), 4096, 0, 8) for t in (tensor, changed))
    assert (a.blocks != b.blocks).any(1).nonzero().flatten().tolist() == [5]
    total = (0, 0)
    for lanes in a.blocks.tolist():
        total = add(total, lanes)
    assert total == a.digest


def test_blocks_outside_of_those_asked_for_are_left_out():
    tensor = torch.arange(8192, dtype=torch.int32)
    runs = local_runs(tensor.shape)
    of_all = digest_runs(tensor, runs, 4096, 0, 8).blocks
    assert torch.equal(digest_runs(tensor, runs, 4096, 3, 2).blocks, of_all[3:5])


def test_runs_that_do_not_fit_the_memory_are_refused():
    with pytest.raises(ValueError, match="12 elements are owned, the local tensor has 10"):
        digest_runs(torch.zeros(10), [Run(0, 12)])


@pytest.mark.parametrize(
    ("dtype", "nan", "inf"),
    [
        (torch.float32, 2, 1),
        (torch.bfloat16, 2, 1),
        (torch.float16, 2, 1),
        (torch.float64, 2, 1),
        (torch.float8_e5m2, 2, 1),
    ],
)
def test_nan_and_inf_are_counted(dtype, nan, inf):
    tensor = torch.tensor([1, math.nan, 0, -math.inf, 5, math.nan]).to(dtype)
    summary = digest_runs(tensor, local_runs(tensor.shape))
    assert (summary.nan_count, summary.inf_count) == (nan, inf)
    assert first_non_finite(tensor, local_runs(tensor.shape)) == 1


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (torch.float8_e4m3fn, [0x7F, 0xFF]),
        (torch.float8_e8m0fnu, [0xFF]),
        (torch.float8_e4m3fnuz, [0x80]),
        (torch.float8_e5m2fnuz, [0x80]),
    ],
)
def test_dtypes_of_one_byte_without_inf(dtype, bits):
    tensor = torch.tensor([1, *bits, 0x7E], dtype=torch.uint8).view(dtype)
    summary = digest_runs(tensor, local_runs(tensor.shape))
    assert (summary.nan_count, summary.inf_count) == (len(bits), 0)
    assert first_non_finite(tensor, local_runs(tensor.shape)) == 1


def test_integers_have_none():
    tensor = torch.full((3,), 0x7FC00000, dtype=torch.int32)  # the bits of a NaN
    assert digest_runs(tensor, local_runs(tensor.shape)).nan_count == 0
    assert first_non_finite(tensor, local_runs(tensor.shape)) is None


def test_the_first_that_is_not_finite_is_named_by_its_global_index():
    shard = torch.zeros(3, 4)
    shard[1, 2] = math.inf
    shard[2, 0] = math.nan
    runs = local_runs((3, 8), [Placement("shard", 1)], (2,), (1,))
    assert first_non_finite(shard, runs) == 1 * 8 + 4 + 2


def test_hex_has_the_first_lane_first():
    assert Summary(torch.zeros(0, 2), (1, (1 << 64) - 1)).hex() == "0" * 15 + "1" + "f" * 16
    blocks = torch.tensor([[1, 2], [-1, 0]])
    assert _digest.hex_of_blocks(blocks) == (
        "00000000000000010000000000000002ffffffffffffffff0000000000000000"
    )
