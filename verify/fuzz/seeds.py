#!/usr/bin/env python3
"""The first inputs of stored_fuzz, out of fixtures/stored: seeds.py OUT"""

import json
import struct
import sys
import zipfile
from pathlib import Path

STORED = Path(__file__).resolve().parents[2] / "fixtures" / "stored"
WITH_CRC = 4
PICKLE, TORCH_SAVE, SAFETENSORS, DCP = (bytes([kind]) for kind in range(4))
SEAL, TRAINING_STATE = (bytes([8 + kind]) for kind in range(2))


def seeds():
    for path in sorted(STORED.glob("*.pt")):
        yield path.stem, TORCH_SAVE + path.read_bytes()
        yield f"{path.stem}_crc", bytes([TORCH_SAVE[0] | WITH_CRC]) + path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    yield f"{path.stem}_pickle", PICKLE + archive.read(name)
    for folder in sorted(STORED.glob("dcp_*")):
        metadata = (folder / ".metadata").read_bytes()
        yield f"{folder.name}_pickle", PICKLE + metadata
        for data in sorted(folder.glob("*.distcp")):
            # One file is all that the target writes: the names of others become its.
            renamed = metadata.replace(b"__1_0.distcp", b"__0_0.distcp")
            yield (
                f"{folder.name}_{data.stem}",
                DCP + struct.pack("<H", len(renamed)) + renamed + data.read_bytes(),
            )
    header = json.dumps({"__metadata__": {"format": "pt"},
                         "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                         "b": {"dtype": "BF16", "shape": [],
                               "data_offsets": [16, 18]}}).encode()  # fmt: skip
    file = struct.pack("<Q", len(header)) + header + bytes(18)
    yield "safetensors", SAFETENSORS + file
    values = json.dumps({"schema": 1, "values": {
        "step": 2, "a": None, "b": [True, "x"], "lr": 0.001, "betas": {"tuple": [0.9, 0.999]},
        "d": {"dict": [["k", 1]]}, "inf": {"float": "7ff0000000000000"}}}).encode()  # fmt: skip
    yield "training_state", TRAINING_STATE + struct.pack("<H", len(values)) + values + file
    digest = "0123456789abcdef" * 2
    yield "seal", SEAL + json.dumps({
        "schema": 2, "digest": "src/digest/SPECIFICATION.md",
        "tensors": {"w": {"dtype": "F32", "shape": [2, 2], "digest": digest}},
        "values": {"step": {"digest": digest}},
        "files": {"model.safetensors": {"bytes": 200, "digest": digest}}}).encode()  # fmt: skip


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (out / name).write_bytes(content)
