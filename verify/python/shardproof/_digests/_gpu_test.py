"""Which way a tensor's digest takes: by the kernel, many in one call, or through the host. Without
a GPU: a tensor says that it is on one, and the op's own CPU code stands for the kernel."""

import math

import pytest
import torch

from shardproof._digests import _digest, _gpu, _together
from shardproof._digests._digest import digest_runs
from shardproof._digests._together import digest_all
from shardproof._holdings._groups import Statement
from shardproof._holdings._layout import Run, local_runs
from shardproof._judging import _own

GPU = torch.device("cuda", 0)


@pytest.fixture
def kernel(monkeypatch):
    """`taken`: how many tensors each call had. Whatever `is_on` it says, is on the GPU."""
    if not _digest.has_op():
        pytest.skip("torch.ops.shardproof.digest is not built")
    monkeypatch.setattr(_gpu, "_given_up", set())
    monkeypatch.setattr(_together, "_SMALL_BYTES", -1)  # the host takes each alone
    return Kernel(monkeypatch)


class Kernel:
    def __init__(self, monkeypatch):
        self.taken: list[int] = []
        self.fails_with = None
        self.given_up = _gpu._given_up
        start, give_up = _together.start, _gpu.give_up

        def started(tensors, runs, formats):
            self.taken.append(len(tensors))
            if self.fails_with is not None:
                raise self.fails_with
            return start(tensors, runs, formats)

        monkeypatch.setattr(_together, "start", started)
        monkeypatch.setattr(_gpu, "takes", lambda local: GPU not in self.given_up)
        monkeypatch.setattr(_gpu, "give_up", lambda device, error: give_up(GPU, error))
        monkeypatch.setattr(_digest, "is_on_gpu", _gpu.takes)


def tensors_of_all_kinds():
    of = torch.Generator().manual_seed(1)
    plain = torch.randn(37, 60, generator=of)
    plain[3, 4], plain[5, 6] = math.nan, -math.inf
    kinds = [plain.to(dtype) for dtype in (torch.float64, torch.bfloat16, torch.float8_e5m2)]
    kinds += [plain.t(), plain[:, ::2], plain[:0], plain.to(torch.complex64), plain[0, 0]]
    kinds += [torch.tensor([1, 255], dtype=torch.uint8).view(torch.float8_e8m0fnu)]
    return kinds


def test_many_are_taken_in_one_call_and_are_what_each_is_alone(kernel):
    held = [(tensor, local_runs(tensor.shape)) for tensor in tensors_of_all_kinds()]
    together = [_together.takes(local) for local, _ in held]
    assert together == [True, True, True, False, False, True, True, True, False]
    for one, (local, runs) in zip(digest_all(held), held, strict=True):
        alone = digest_runs(local, runs)
        assert (one.digest, one.nan_count, one.inf_count) == (
            alone.digest, alone.nan_count, alone.inf_count,
        )  # fmt: skip
        if one.coverage is not None:
            assert one.coverage == _digest.coverage(runs, local.element_size())
    assert kernel.taken == [together.count(True)]


def test_thousands_are_waited_for_together(kernel, monkeypatch):
    monkeypatch.setattr(_together, "MAX", 100)
    held = [(torch.full((5,), number), [Run(0, 5)]) for number in range(250)]
    assert len({summary.digest for summary in digest_all(held)}) == 250
    assert kernel.taken == [100, 100, 50]


def test_runs_that_do_not_fit_are_refused_before_anything_is_read(kernel):
    with pytest.raises(ValueError, match="12 elements are owned, the local tensor has 10"):
        digest_all([(torch.zeros(10), [Run(0, 12)])])
    assert kernel.taken == []


def test_where_the_kernel_cannot_run_the_host_is_told_of_once_and_digests(kernel):
    held = [(torch.ones(4), [Run(0, 4)])]
    expected = digest_all(held)[0].digest
    kernel.fails_with = RuntimeError("shardproof::digest: cuda:0: no kernel image\nwhere it was")
    with pytest.warns(UserWarning, match="on cuda:0 are computed on the host.*no kernel image$"):
        assert digest_all(held)[0].digest == expected
    assert digest_all(held)[0].digest == expected
    assert len(kernel.taken) == 2  # the third was not tried


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("shardproof::digest: cuda:0: cannot allocate its results (some call failed)"),
    ],
)
def test_without_memory_on_the_gpu_only_this_call_goes_through_the_host(kernel, error):
    held = [(torch.ones(4), [Run(0, 4)])]
    kernel.fails_with = error
    summary = digest_all(held)[0]
    assert summary.digest == digest_runs(*held[0]).digest
    assert GPU not in kernel.given_up


def test_an_error_of_the_job_is_not_hidden(kernel):
    kernel.fails_with = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        digest_all([(torch.ones(4), [Run(0, 4)])])


def test_a_tensor_on_the_host_never_goes_to_the_kernel():
    local = torch.ones(4)
    assert not _digest.is_on_gpu(local)


def test_small_tensors_on_the_host_are_read_in_one_call_and_large_ones_alone(monkeypatch):
    if not _digest.has_op():
        pytest.skip("torch.ops.shardproof.digest is not built")
    start, taken = _together.start, []
    monkeypatch.setattr(_together, "_SMALL_BYTES", 37 * 60 * 4)
    monkeypatch.setattr(
        _together, "start", lambda *all_: taken.append(len(all_[0])) or start(*all_)
    )
    held = [(tensor, local_runs(tensor.shape)) for tensor in tensors_of_all_kinds()]
    columns = torch.randn(37, 3)
    held.append((columns, [Run(5, 3, 37, 60, 0, 3)]))
    found = digest_all(held)
    assert taken == [5]
    for one, (local, runs) in zip(found, held, strict=True):
        alone = digest_runs(local, runs)
        assert (one.digest, one.nan_count, one.inf_count) == (
            alone.digest, alone.nan_count, alone.inf_count,
        )  # fmt: skip
        assert one.coverage in (None, _digest.coverage(runs, local.element_size()))


def test_an_error_of_the_hosts_is_not_hidden(monkeypatch):
    def failing(*_):
        raise RuntimeError("shardproof::digests: the run does not lie within the data")

    if not _digest.has_op():
        pytest.skip("torch.ops.shardproof.digest is not built")
    monkeypatch.setattr(_together, "start", failing)
    with pytest.raises(RuntimeError, match="does not lie within"):
        digest_all([(torch.ones(4), [Run(0, 4)])])


def test_a_gpu_without_a_kernel_is_read_through_host_copies(monkeypatch):
    copied = []
    local = torch.arange(600.0).reshape(20, 30).t()
    plain = digest_runs(local, local_runs(local.shape)).digest
    of_device = _digest._copied_parts
    monkeypatch.setattr(_digest, "_COPY_BYTES", 256)
    for part, runs in of_device(local, local_runs(local.shape)):
        copied.append((part, runs))
    assert len(copied) > 5
    total = (0, 0)
    for part, runs in copied:
        total = _digest.add(total, _pass(part, runs))
    assert total == plain


def _pass(part, runs):
    return _digest._pass_over([(part, runs)], 0, 0, 0).digest


def model_of(count):
    return torch.nn.ParameterList(
        torch.nn.Parameter(torch.full((3,), float(n))) for n in range(count)
    )


def test_a_model_is_read_in_one_call_and_its_records_are_those_of_the_host(kernel, monkeypatch):
    model = model_of(40)
    with torch.no_grad():
        model[7][1] = math.nan
    tensors = _own.tensors_of(model, None, (), Statement())
    by_kernel = _own.records_of(tensors, True)
    assert kernel.taken == [40]
    monkeypatch.setattr(_digest, "is_on_gpu", lambda local: False)
    assert _own.records_of(tensors, True) == by_kernel
    assert kernel.taken == [40]


def test_what_changes_while_it_is_read_with_others_is_not_compared(kernel, monkeypatch):
    model = model_of(3)
    reading = _own.Reading(_own.tensors_of(model, None, (), Statement()), False)
    start = _together.start

    def changing(*arguments):
        with torch.no_grad():
            model[1].add_(1)
        return start(*arguments)

    monkeypatch.setattr(_together, "start", changing)
    reading.read()
    why = [record.unreadable for record in reading.records.values()]
    assert why == ["", _own.CHANGED, ""]
