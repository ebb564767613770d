"""The digest's CUDA kernel against the op's CPU code, on a GPU. ci/gpu runs these where one is."""

import math
import random
import threading

import pytest
import torch

import shardproof
from shardproof._digests import _digest, _gpu, _together
from shardproof._digests._digest import coverage, digest_runs
from shardproof._digests._together import digest_all
from shardproof._holdings._layout import Placement, Run, local_runs

if not torch.cuda.is_available():
    pytest.skip("skipped: there is no GPU", allow_module_level=True)
if not (_digest.has_op() and _gpu._has_kernel()):
    pytest.skip("skipped: the op was built without the kernel", allow_module_level=True)

GPU = torch.device("cuda", torch.cuda.current_device())
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.complex64]  # fmt: skip
OTHERS = [torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float8_e8m0fnu]


@pytest.fixture(autouse=True)
def all_by_the_kernel(monkeypatch):
    """No test passes because the host stood in for a kernel that does not run."""
    monkeypatch.setattr(_gpu, "_given_up", set())
    yield
    assert _gpu._given_up == set()


def made(dtype, *shape):
    """Random bytes on the host, as elements of the dtype: NaN and Inf come by themselves."""
    size = torch.empty(0, dtype=dtype).element_size()
    of = torch.Generator().manual_seed(math.prod(shape))
    count = math.prod(shape) * size
    data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=of)
    if dtype == torch.bool:
        data &= 1
    return data.view(dtype).reshape(shape)


def agree(local, runs, *blocks):
    """local: on the host. By the kernel, alone and with others, as by the CPU."""
    there = torch.empty_strided(local.shape, local.stride(), dtype=local.dtype, device=GPU)
    there.copy_(local)
    assert there.stride() == local.stride() and _digest.is_on_gpu(there)
    expected, seen = digest_runs(local, runs, *blocks), digest_runs(there, runs, *blocks)
    assert seen.digest == expected.digest
    assert (seen.nan_count, seen.inf_count) == (expected.nan_count, expected.inf_count)
    assert torch.equal(seen.blocks, expected.blocks)
    (together,) = digest_all([(there, runs)])
    assert (together.digest, together.nan_count, together.inf_count) == (
        expected.digest, expected.nan_count, expected.inf_count,
    )  # fmt: skip
    if _together.takes(there):
        assert together.coverage == coverage(runs, local.element_size())
    return expected


@pytest.mark.parametrize("dtype", FLOATS + OTHERS, ids=str)
def test_every_dtype_whole_and_in_shards(dtype):
    whole = made(dtype, 259, 1031)
    summary = agree(whole, local_runs(whole.shape))
    if dtype in FLOATS:
        assert summary.nan_count > 0
    for dim in (0, 1):
        for rank, part in enumerate(whole.chunk(3, dim)):
            runs = local_runs(whole.shape, [Placement("shard", dim)], (3,), (rank,))
            agree(part.contiguous(), runs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8], ids=str)
def test_how_the_memory_lies_does_not_matter(dtype):
    tensor = made(dtype, 70, 90)
    for local in (tensor.t(), tensor[:, ::3], tensor[5:], tensor[:, 1:], tensor[0, 0]):
        agree(local, local_runs(local.shape))
    big = made(dtype, 4100, 4100).t()
    agree(big, local_runs(big.shape))


def test_of_nothing():
    assert agree(torch.zeros(0, 5), []).digest == (0, 0)


def test_blocks():
    tensor = made(torch.float16, 300, 1000)
    for side in (4096, 3 * 4096, 1 << 20):
        count = -(-tensor.nbytes // side)
        agree(tensor, local_runs(tensor.shape), side, 0, count)
    agree(tensor, local_runs(tensor.shape), 4096, 7, 3)
    agree(made(torch.uint8, 40 * 300), [Run(9, 300, 40, 311, 0, 300)], 4096, 0, 3)


def random_runs(of, size):
    """(rows of a table of runs, bytes of memory that they need)."""
    rows, end = [], 0
    for _ in range(of.randint(1, 4)):
        length = of.choice([1, 3, of.randint(1, 60), of.randint(1, 5000), of.randint(4000, size)])
        count = of.randint(1, max(1, min(600, size // length)))
        stride = of.choice([length, length + of.randint(0, 99), 4096 * (1 + length // 4096)])
        local_stride = length + of.choice([0, of.randint(0, 40)])
        start, local_start = of.randint(0, 1 << of.randint(1, 50)), of.randint(0, 33)
        rows.append([start, length, count, stride, local_start, local_stride])
        end = max(end, local_start + (count - 1) * local_stride + length)
    return rows, end


def test_random_runs():
    op = torch.ops.shardproof.digest
    for seed in range(400):
        of = random.Random(seed)
        rows, end = random_runs(of, of.choice([5000, 300_000]))
        data = made(torch.uint8, end + 16)
        shift = of.randint(0, 16)
        table, there = torch.tensor(rows), data.to(GPU)
        for number in range(7):
            blocks = (4096 * of.randint(1, 3), rows[0][0] // 12288, of.choice([0, 5]))
            expected = op(data[shift:], table, number, *blocks)
            seen = op(there[shift:], table, number, *blocks)
            assert seen.device == there.device
            assert torch.equal(seen.cpu(), expected), f"seed {seed}, format {number}"


def test_many_tensors_in_one_call():
    of = random.Random(5)
    held = [
        (made(of.choice(FLOATS[:6]), of.randint(0, 3000)), of.randint(0, 1 << 40))
        for _ in range(5000)
    ]
    held = [(local, [Run(start, local.numel())] if local.numel() else []) for local, start in held]
    there = [(local.to(GPU), runs) for local, runs in held]
    for seen, (local, runs) in zip(digest_all(there), held, strict=True):
        expected = digest_runs(local, runs)
        assert (seen.digest, seen.nan_count, seen.inf_count) == (
            expected.digest, expected.nan_count, expected.inf_count,
        )  # fmt: skip


def test_more_than_2_to_the_31_elements():
    there = torch.empty((1 << 31) + 5, dtype=torch.uint8, device=GPU)
    there.random_()
    runs = [Run(3, there.numel())]
    assert digest_runs(there, runs).digest == digest_runs(there.cpu(), runs).digest


def test_on_the_callers_stream_and_nothing_is_waited_for():
    local = torch.zeros(1 << 20, device=GPU)
    runs = local_runs(local.shape)
    digest_all([(local, runs)])  # the kernel is loaded
    expected = digest_runs(torch.full((1 << 20,), 3.0), runs).digest
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1 << 29)  # longer than all that follows takes to ask for
        local.fill_(3.0)
        found = _together.start([local], [runs], [3])
        done.record()
    assert not done.query()  # it was asked for, and the host went on
    stream.synchronize()
    assert _digest.add((0, 0), found[0, :2].tolist()) == expected


def test_in_a_cuda_graph():
    local = torch.zeros(300_000, device=GPU)
    many = [torch.zeros(50, device=GPU) for _ in range(1000)]
    runs = local_runs(local.shape)
    of_many = [[Run(0, 50)]] * len(many)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        _together.start([local], [runs], [3])
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        one = _together.start([local], [runs], [3])
        all_of_them = _together.start(many, of_many, [3] * len(many))
    for value in (1.0, -2.5, math.nan):
        local.fill_(value)
        for tensor in many:
            tensor.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        expected = digest_runs(torch.full((300_000,), value), runs)
        assert _digest.add((0, 0), one[0, :2].tolist()) == expected.digest
        assert one[0, 2].item() == expected.nan_count
        small = digest_runs(torch.full((50,), value), [Run(0, 50)])
        for row in all_of_them.tolist():
            assert _digest.add((0, 0), row[:2]) == small.digest


def test_in_a_thread_that_has_no_context_yet():
    local = made(torch.float32, 5000).to(GPU)
    runs, found = local_runs(local.shape), []
    thread = threading.Thread(target=lambda: found.append(digest_runs(local, runs).digest))
    thread.start()
    thread.join(60)
    assert found == [digest_runs(local.cpu(), runs).digest]


def test_two_streams_at_once():
    tensors = [made(torch.bfloat16, 3_000_000 + i).to(GPU) for i in range(6)]
    streams = [torch.cuda.Stream() for _ in tensors]
    torch.cuda.synchronize()
    found = []
    for _ in range(5):
        for tensor, stream in zip(tensors, streams, strict=True):
            with torch.cuda.stream(stream):
                found.append(_together.start([tensor], [local_runs(tensor.shape)], [2]))
    torch.cuda.synchronize()
    expected = [digest_runs(t.cpu(), local_runs(t.shape)).digest for t in tensors] * 5
    assert [_digest.add((0, 0), rows[0, :2].tolist()) for rows in found] == expected


def test_without_memory_for_the_results_the_host_stands_in():
    local = made(torch.float32, 4 << 20).to(GPU)
    runs = local_runs(local.shape)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    expected = digest_runs(local.cpu(), runs).digest
    refused = []
    torch.cuda.set_per_process_memory_fraction(1e-6)
    try:
        small = []  # what is left of the cache's small blocks
        try:
            while len(small) < 1 << 16:
                small.append(torch.empty(1, device=GPU))
        except torch.OutOfMemoryError as error:
            refused.append(error)
        assert refused, "the fraction did not end the memory"
        assert digest_runs(local, runs).digest == expected
        assert digest_all([(local, runs)])[0].digest == expected
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_on_another_gpu_than_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("skipped: there is one GPU only")
    local = made(torch.float32, 5000).to("cuda:1")
    with torch.cuda.device(0):
        found = digest_all([(local, local_runs(local.shape))])[0].digest
        assert torch.cuda.current_device() == 0
    assert found == digest_runs(local.cpu(), local_runs(local.shape)).digest


def test_what_the_op_refuses():
    digests = torch.ops.shardproof.digests
    there = torch.zeros(4, device=GPU)
    runs, of_tensors = torch.tensor([[0, 16, 1, 0, 0, 0]]), torch.tensor([[1, 3]])
    with pytest.raises(RuntimeError, match="does not lie within the data's 16 bytes"):
        digests([there], runs + 1, of_tensors)
    with pytest.raises(RuntimeError, match="expected tensors on one GPU"):
        digests([there, torch.zeros(4)], runs, of_tensors)
    with pytest.raises(RuntimeError, match="float_format 9 is unknown"):
        digests([there], runs, torch.tensor([[1, 9]]))
    with pytest.raises(RuntimeError, match="is too much for a GPU"):
        digests([there], torch.tensor([[0, 1, 1 << 60, 1, 0, 0]]), of_tensors)


def test_a_check_of_a_model_on_the_gpu_names_its_nan():
    model = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(4))).to(GPU)
    assert shardproof.check(model, finite=True)
    with torch.no_grad():
        model[2].weight[7, 9] = math.nan
    with pytest.raises(shardproof.Mismatch, match="2.weight"):
        shardproof.check(model, finite=True)


def test_a_seal_of_the_gpus_model_is_that_of_the_hosts(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 2))
    shardproof.seal(model, to=tmp_path / "host")
    shardproof.seal(model.to(GPU), to=tmp_path / "gpu")
    assert (tmp_path / "gpu").read_bytes() == (tmp_path / "host").read_bytes()
