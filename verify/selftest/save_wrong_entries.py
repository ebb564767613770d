"""Writes checkpoints, each with one entry that is wrong. usage: save_wrong_entries.py OUT"""

import pickle
import sys
import zipfile
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp


def dcp_with(folder, change):
    """A DCP directory of two tensors, its storage_data changed by change(entries, keys)."""
    dcp.save({"a": torch.ones(4), "b": torch.zeros(4)}, checkpoint_id=folder)
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata.storage_data, sorted(metadata.storage_data, key=lambda key: key.fqn))
    path.write_bytes(pickle.dumps(metadata))


def one_place_for_two(entries, keys):
    entries[keys[1]] = entries[keys[0]]


def offset_of(value):
    def change(entries, keys):
        entries[keys[1]].offset = value

    return change


def archive_of_version(path, text):
    torch.save({"w": torch.ones(3)}, path)
    with zipfile.ZipFile(path) as file:
        entries = [(name, file.read(name)) for name in file.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, data in entries:
            file.writestr(name, text if name.endswith("/version") else data)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    dcp_with(out / "one_place", one_place_for_two)
    for value in (-5, 1.5, "x", None, 10**30):
        dcp_with(out / f"offset {value}", offset_of(value))
    for text in ("3\n", "99\n", "0\n", "x\n", ""):
        archive_of_version(out / f"version {text.strip()}.pt", text)
    torch.save(3, out / "number.pt")
    torch.save({"lr": 1, "steps": [1, 2]}, out / "values.pt")
    (out / "values").mkdir()
    torch.save({"lr": 1, "steps": [1, 2]}, out / "values" / "model.pt")
