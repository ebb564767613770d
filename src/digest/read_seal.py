#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small reader of SPECIFICATION.md, version 1, for others to copy: numpy alone.

    read_seal.py MODEL.safetensors            # the digest of each tensor
    read_seal.py MODEL.safetensors SEAL.json  # exit code 1 where the two differ

The digest of a tensor is that of its row-major bytes. Those of its parts add up to it: digest(part,
start), each with the place of its first byte, then `+` of both lanes modulo 2**64.
"""

import json
import struct
import sys

import numpy

MASK = 2**64 - 1
WORDS = 1024  # of four bytes, in a block


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


KEYS = [numpy.array([(mix((0x5368617264000000 + 1024 * lane + word) & MASK) >> 32) | 1
                     for word in range(WORDS)], numpy.uint64) for lane in range(2)]  # fmt: skip


def lanes(data, start=0):
    """The two sums of bytes whose first one has this place in the tensor's image."""
    block, before = divmod(start, 4 * WORDS)
    after = -(before + len(data)) % (4 * WORDS)
    padded = bytes(before) + bytes(data) + bytes(after)
    words = numpy.frombuffer(padded, "<u4").astype(numpy.uint64).reshape(-1, WORDS)
    sums = []
    for lane in range(2):
        factors = [mix((0x70726F6F66000000 + 2**63 * lane + block + i) & MASK) | 1
                   for i in range(len(words))]  # fmt: skip
        of_blocks = (words * KEYS[lane]).sum(axis=1, dtype=numpy.uint64)
        products = of_blocks * numpy.array(factors, numpy.uint64)
        sums.append(int(products.sum(dtype=numpy.uint64)))
    return sums


def digest(data, start=0):
    """As a seal has it: 32 hexadecimal digits."""
    return "".join(f"{lane:016x}" for lane in lanes(data, start))


def tensors(path):
    """{name: what a seal says of it} of a file of safetensors."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        found = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            found[name] = {"dtype": entry["dtype"], "shape": entry["shape"],
                           "digest": digest(file.read(end - begin))}  # fmt: skip
    return found


def main(path, seal=None):
    found = tensors(path)
    if seal is None:
        print(json.dumps(found, indent=1, sort_keys=True))
        return 0
    with open(seal) as file:
        sealed = json.load(file)["tensors"]
    names = sorted(found.keys() | sealed.keys())
    differ = [name for name in names if found.get(name) != sealed.get(name)]
    print("\n".join(differ) or f"{len(names)} tensors are as sealed")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
