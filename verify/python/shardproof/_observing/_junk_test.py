import mmap

import pytest
import torch
from torch import nn

from shardproof._holdings._model import tensors_of
from shardproof._observing import _junk
from shardproof._observing._evidence import Writer, on_one_axis
from shardproof._observing._observer import Observer


class Model(nn.Module):
    """Buffers of these values, under names by number."""

    def __init__(self, *values):
        super().__init__()
        for number, value in enumerate(values):
            self.register_buffer(f"b{number}", value)


def overwrite(model, *others):
    held = {each.name: each for each in tensors_of(model)}
    _junk.overwrite(
        [each for name, each in held.items() if name not in others], [held[n] for n in others]
    )


KINDS = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS)
def test_every_element_gets_another_value(dtype):
    value = torch.ones(4, 6).to(dtype)
    before = value.view(torch.uint8).clone().reshape(4, 6, -1)
    columns = value[:, ::2]
    overwrite(Model(columns))
    after = value.view(torch.uint8).reshape(4, 6, -1)
    changed = (after != before).any(dim=2)
    assert changed[:, ::2].all() and not changed[:, 1::2].any()
    if dtype.is_floating_point:
        assert columns.to(torch.float64).isnan().all()


def test_what_shares_memory_with_something_defined_stays():
    whole = torch.ones(8)
    overwrite(Model(whole[:4], whole[4:], torch.ones(2)), "b1")
    assert whole.tolist() == [1] * 8


def test_tied_integers_do_not_come_back():
    value = torch.arange(3)
    overwrite(Model(value, value))
    assert value.tolist() == [-1, -2, -3]


def test_an_expanded_tensor_and_an_empty_one_are_no_trouble():
    value = torch.ones(1, 3)
    overwrite(Model(value.expand(4, 3), torch.ones(0, 3), torch.ones(2, device="meta")))
    assert value.isnan().all()


def test_memory_of_files_and_of_other_processes_stays(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    shared = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=4096)
    of_file = torch.empty(0).set_(shared, 0, (1024,))
    with path.open("rb") as file:
        read_only = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    with pytest.warns(UserWarning, match="not writable"):
        unwritable = torch.frombuffer(read_only, dtype=torch.float32)
    shared_by_ranks = torch.zeros(5).share_memory_()
    overwrite(Model(of_file, unwritable, shared_by_ranks))
    assert path.read_bytes() == bytes(8192)
    assert shared_by_ranks.tolist() == [0] * 5


@pytest.mark.parametrize(
    ("mode", "is_of_subject", "stage", "content", "is_junk"),
    [
        ("values", True, "materialized", "undefined", True),
        ("values", True, "loaded", lambda name: "undefined", True),
        ("values", True, "loaded", None, False),
        ("values", True, "built", "undefined", False),
        ("values", False, "loaded", "undefined", False),  # a script of one's own
        ("memory", True, "loaded", "undefined", False),
    ],
)
def test_only_what_a_subject_calls_undefined(
    tmp_path, mode, is_of_subject, stage, content, is_junk
):
    observe = Observer(
        Writer(str(tmp_path), 0), on_one_axis(0, 1), mode, [], is_of_subject=is_of_subject
    )
    model = nn.Linear(2, 3)
    version = model.weight._version
    observe(stage, model=model, content=content)
    assert bool(model.weight.isnan().all()) == is_junk
    assert model.weight.grad_fn is None and model.weight._version == version
