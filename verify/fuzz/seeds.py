#!/usr/bin/env python3
"""The first inputs of stored_fuzz, out of fixtures/stored: seeds.py OUT"""

import io
import json
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

STORED = Path(__file__).resolve().parents[2] / "fixtures" / "stored"
WITH_CRC = 4
PICKLE, TORCH_SAVE, SAFETENSORS, DCP = (bytes([kind]) for kind in range(4))
SEAL, TRAINING_STATE, RANKS, UNIVERSAL = (bytes([8 + kind]) for kind in range(4))
ANY_FILE = TORCH_SAVE  # what it is read as, its first bytes say


def two(first, second):
    return struct.pack("<H", len(first)) + first + second


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
                DCP + two(renamed, data.read_bytes()),
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
    yield "training_state", TRAINING_STATE + two(values, file)
    for kind in ("w", "w:gz"):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode=kind) as archive:
            entry = tarfile.TarInfo("folder/model.safetensors")
            entry.size = len(file)
            archive.addfile(entry, io.BytesIO(file))
        yield f"tar_{kind[2:]}", ANY_FILE + packed.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("model.safetensors", file)
        archive.writestr("other.safetensors", file, zipfile.ZIP_DEFLATED)
    yield "zip", ANY_FILE + packed.getvalue()
    yield "gguf", ANY_FILE + (STORED / "model.gguf").read_bytes()
    for folder in ("sharded", "local"):
        ranks = [path.read_bytes() for path in sorted((STORED / "fsdp1" / folder).iterdir())]
        yield f"fsdp1_{folder}", RANKS + two(*ranks[:2])
    model, *optimizer = sorted((STORED / "deepspeed" / "stage_2").iterdir(), reverse=True)
    yield "deepspeed", RANKS + two(*(path.read_bytes() for path in optimizer))
    universal = STORED / "deepspeed" / "universal"
    states = (universal / "mp_rank_00_model_states.pt").read_bytes()
    weight = (universal / "zero" / "0.weight" / "fp32.pt").read_bytes()
    yield "universal", UNIVERSAL + two(states, weight)
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
