"""What a checkpoint holds, and where its bytes are, of each format; and what is refused."""

import json
import os
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from shardproof._stored._checkpoint import Unreadable, open_stored


def tensors():
    torch.manual_seed(0)
    return {
        "a.weight": torch.randn(5, 3),
        "a.bias": torch.randn(4).to(torch.bfloat16),
        "b": torch.tensor(3),
        "none": torch.empty(0, 2),
    }


def bytes_at(stored, path_ends):
    """The bytes of the one piece of a tensor, read where it says it is."""
    (piece,) = stored.pieces
    place = piece.locate()
    assert place.path.endswith(path_ends) and place.strides is None
    size = stored.dtype.itemsize
    for length in piece.sizes:
        size *= length
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        return file.read(size)


def image(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def save_dcp(state, path):
    dcp.save(state, checkpoint_id=path, no_dist=True)


def write(kind, state, path):
    """\\returns the path of what was saved, and how the names of its files end."""
    if kind == "dcp":
        save_dcp(state, path)
        return path, ".distcp"
    os.makedirs(path)
    file = path / {"safetensors": "model.safetensors", "torch": "model.pt"}[kind]
    (save_file if kind == "safetensors" else torch.save)(state, file)
    return path, file.name


@pytest.mark.parametrize("kind", ["dcp", "safetensors", "torch"])
def test_every_format_says_where_the_bytes_are(kind, tmp_path):
    path, ends = write(kind, tensors(), tmp_path / "c")
    found = open_stored(path)
    found.check_complete()
    assert found.tensors.keys() == tensors().keys()
    for name, tensor in tensors().items():
        stored = found.tensors[name]
        assert (stored.dtype, stored.shape) == (tensor.dtype, tuple(tensor.shape))
        assert bytes_at(stored, ends) == image(tensor)


def test_names_of_torch_save_are_the_keys_that_lead_there(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}, "list": [torch.ones(1), 3]}, tmp_path / "x.pt")
    assert open_stored(tmp_path / "x.pt").tensors.keys() == {"model.w", "list.0"}


def test_a_transposed_tensor_says_how_it_lies(tmp_path):
    torch.save({"w": torch.ones(2, 3).t()}, tmp_path / "x.pt")
    (piece,) = open_stored(tmp_path / "x.pt").tensors["w"].pieces
    assert (piece.sizes, piece.locate().strides) == ((3, 2), (1, 3))


def test_files_with_an_index(tmp_path):
    for number, name in enumerate(("a", "b")):
        save_file({name: torch.ones(2)}, tmp_path / f"{number}.safetensors")
    index = {"weight_map": {"a": "0.safetensors", "b": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert open_stored(tmp_path).tensors.keys() == {"a", "b"}
    index["weight_map"]["c"] = "1.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(Unreadable, match="there is no tensor 'c', which the index names"):
        open_stored(tmp_path)
    index["weight_map"]["c"] = "../1.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(Unreadable, match="outside itself"):
        open_stored(tmp_path)


def test_one_of_two_numbered_files_is_not_complete(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(Unreadable, match="there is no model-00002-of-00002.safetensors"):
        open_stored(tmp_path)


def cut(path, count=40):
    os.truncate(path, os.path.getsize(path) - count)


@pytest.mark.parametrize("kind", ["dcp", "safetensors", "torch"])
def test_a_file_cut_short_is_told(kind, tmp_path):
    path, _ = write(kind, tensors(), tmp_path / "c")
    (file,) = [name for name in os.listdir(path) if name != ".metadata"]
    cut(path / file)
    with pytest.raises(Unreadable, match=file):
        open_stored(path).check_complete()


def test_what_is_no_checkpoint_is_told(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        open_stored(tmp_path / "nothing")
    with pytest.raises(Unreadable, match="there is no checkpoint in it"):
        open_stored(tmp_path)
    (tmp_path / "__0_0.distcp").write_bytes(b"x")
    with pytest.raises(Unreadable, match="the save did not finish"):
        open_stored(tmp_path)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense that is no header")
    with pytest.raises(Unreadable, match="x.safetensors"):
        open_stored(tmp_path / "x.safetensors")


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


def test_no_pickle_runs_anything(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(Unreadable, match="bare pickle"):
        open_stored(tmp_path / "old.pt")
    torch.save({"w": Evil()}, tmp_path / "new.pt")
    with pytest.raises(Unreadable, match="new.pt"):
        open_stored(tmp_path / "new.pt")
    folder = tmp_path / "dcp"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(Unreadable, match=r"it names posix.system, which is not read"):
        open_stored(folder)


def test_a_damaged_metadata_is_told(tmp_path):
    save_dcp(tensors(), tmp_path / "c")
    data = (tmp_path / "c" / ".metadata").read_bytes()
    for length in (0, 1, len(data) // 2, len(data) - 1):
        (tmp_path / "c" / ".metadata").write_bytes(data[:length])
        with pytest.raises(Unreadable, match=".metadata"):
            open_stored(tmp_path / "c")
