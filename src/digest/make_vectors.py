#!/usr/bin/env python3
"""Writes vectors.json: test vectors of SPECIFICATION.md, version 1.

Plain Python, byte by byte, straight from the specification, and on purpose without a line in common
with the C++ code. Run it in this folder after a change to the list of vectors; the output is the
same on every run.
"""

import json
import pathlib

MASK = 2**64 - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key(lane, word):
    return (mix((0x5368617264000000 + 1024 * lane + word) & MASK) >> 32) | 1


def factor(lane, block):
    return mix((0x70726F6F66000000 + 2**63 * lane + block) & MASK) | 1


def contribution(lane, position, value):
    word = (position // 4) % 1024
    shifted = value << (8 * (position % 4))
    return shifted * key(lane, word) * factor(lane, position // 4096)


def digest(image):
    """image: pairs of position and value, every position of the set once."""
    lanes = [0, 0]
    for position, value in image:
        for lane in range(2):
            lanes[lane] = (lanes[lane] + contribution(lane, position, value)) & MASK
    return "".join(f"{lane:016x}" for lane in lanes)


def byte_of(data, position, index):
    if data["kind"] == "hex":
        return bytes.fromhex(data["hex"])[index]
    if data["kind"] == "constant":
        return data["byte"]
    return ((position * 2654435761 + data["seed"]) % 2**32) // 2**24


def run(start, length, count=1, stride=0):
    return {"global_start": start, "length": length, "count": count, "global_stride": stride}


def positions(runs):
    for r in runs:
        for i in range(r["count"]):
            begin = r["global_start"] + i * r["global_stride"]
            yield from range(begin, begin + r["length"])


def formula(seed):
    return {"kind": "formula", "seed": seed}


def vector(name, runs, data):
    held = list(positions(runs))
    image = [(p, byte_of(data, p, i)) for i, p in enumerate(held)]
    return {
        "name": name,
        "runs": runs,
        "data": data,
        "digest": digest(image),
        "coverage": digest((p, 1) for p in held),
    }


def one_byte(position):
    return vector(f"one byte at {position}", [run(position, 1)], {"kind": "hex", "hex": "a5"})


def vectors():
    yield vector("empty set", [], formula(0))
    yield vector("run of length 0", [run(17, 0)], formula(0))
    for position in (0, 1, 3, 4095, 4096):
        yield one_byte(position)
    yield vector("text", [run(0, 10)], {"kind": "hex", "hex": b"shardproof".hex()})
    for size in (4, 31, 32, 33, 63, 64, 65, 4092, 4095, 4096, 4097, 8191, 8192, 8193, 20483):
        yield vector(f"{size} bytes", [run(0, size)], formula(size))
    whole = 9001
    yield vector("a tensor whole", [run(0, whole)], formula(7))
    cuts = (0, 1, 6, 4090, 4099, 8192, whole)
    pieces = [run(a, b - a) for a, b in zip(cuts, cuts[1:])]
    yield vector("the same tensor in uneven pieces", pieces, formula(7))
    for i, piece in enumerate(pieces):
        yield vector(f"piece {i} of it alone", [piece], formula(7))
    yield vector("columns of a matrix, 256 bytes a row", [run(768, 256, 24, 1024)], formula(11))
    yield vector("columns of a matrix at an odd element", [run(2, 6, 40, 14)], formula(12))
    yield vector("rows that cross blocks", [run(4000, 300, 5, 4100)], formula(13))
    yield vector("zeros", [run(0, 5000)], {"kind": "constant", "byte": 0})
    yield vector("ones", [run(0, 5000)], {"kind": "constant", "byte": 1})
    yield vector("all bits set", [run(4094, 4100)], {"kind": "constant", "byte": 255})
    yield vector("beyond 2^32", [run(2**32 + 4093, 4200)], formula(14))
    yield vector("block number beyond 2^32", [run(2**44 + 2**33 + 5, 4200)], formula(15))
    yield vector("end of the address space", [run(2**64 - 4099, 4099)], formula(16))


def constants():
    for lane in range(2):
        for word in (0, 1, 1023):
            yield {
                "name": f"key({lane}, {word})",
                "lane": lane,
                "word": word,
                "key": f"{key(lane, word):08x}",
            }
        for block in (0, 1, 2**32 + 1):
            yield {
                "name": f"factor({lane}, {block})",
                "lane": lane,
                "block": block,
                "factor": f"{factor(lane, block):016x}",
            }


def main():
    document = {
        "specification": 1,
        "about": [
            "Runs: count stretches of length bytes; stretch i begins at global byte"
            " global_start + i*global_stride. Every number is exact: positions reach 2^64 - 1.",
            "Data, kind formula: the byte at global position p is"
            " floor(((p * 2654435761 + seed) mod 2^32) / 2^24).",
            "Data, kind constant: every byte is byte. Kind hex: the bytes of the runs in order.",
        ],
        "constants": list(constants()),
        "vectors": list(vectors()),
    }
    path = pathlib.Path(__file__).with_name("vectors.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
