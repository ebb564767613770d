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
            yield f"{folder.name}_{data.stem}", DCP + struct.pack("<H", len(renamed)) + renamed + data.read_bytes()
    header = json.dumps({"__metadata__": {"format": "pt"},
                         "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                         "b": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]}}).encode()  # fmt: skip
    yield "safetensors", SAFETENSORS + struct.pack("<Q", len(header)) + header + bytes(18)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (out / name).write_bytes(content)
