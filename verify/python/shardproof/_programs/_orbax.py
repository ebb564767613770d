"""Shows a checkpoint of Orbax as one file of safetensors, by tensorstore: `_orbax.py DIRECTORY`.

Speaks as _urls.py does. Nothing is converted beforehand: what is asked for of a tensor's bytes is
read from the arrays of the checkpoint then. Started by verify/formats/url.cc.
"""

import json
import math
import os
import struct
import sys

from _urls import serve

NAME = "orbax.safetensors"
CACHE_BYTES = 256 << 20
DTYPES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip


def _box(shape: tuple, first: int, last: int) -> tuple:
    """A box of consecutive elements that begins at `first` and ends by `last`, and how many it has.
    A row that is wanted in part is cut: it may be larger than memory."""
    index, inner = [], math.prod(shape)
    for size in shape:
        inner //= size
        low, rest = divmod(first, inner)
        rows = min((last - first) // inner, size - low)
        if rest == 0 and rows:
            return (*index, slice(low, low + rows)), rows * inner
        index.append(low)
        first, last = rest, min(last - low * inner, inner)
    return tuple(index), 1


def _items(directory: str) -> list:
    """The trees of a checkpoint, each with what goes before its names: of several, the folder."""
    if os.path.exists(os.path.join(directory, "default", "_METADATA")):
        directory = os.path.join(directory, "default")
    if os.path.exists(os.path.join(directory, "_METADATA")):
        return [(directory, "")]
    folders = [name for name in sorted(os.listdir(directory))
               if os.path.exists(os.path.join(directory, name, "_METADATA"))]  # fmt: skip
    if not folders:
        raise ValueError("expected _METADATA, which names its tensors, found none")
    return [(os.path.join(directory, name), f"{name}/") for name in folders]


class Checkpoint:
    """The arrays of one directory, in the order of their names."""

    def __init__(self, directory: str):
        import tensorstore

        self.context = tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES}})
        self.texts: dict = {}
        opening: dict = {}
        for item, before in _items(directory):
            self._open_item(tensorstore, item, before, opening)
        self._place(opening)

    def _open_item(self, tensorstore, directory: str, before: str, opening: dict) -> None:
        with open(os.path.join(directory, "_METADATA"), encoding="utf-8") as file:
            metadata = json.load(file)
        strings = {}
        if os.path.exists(os.path.join(directory, "_strings.json")):
            with open(os.path.join(directory, "_strings.json"), encoding="utf-8") as file:
                strings = json.load(file)
        # Where zeros are stored too, what is not there is lost.
        may_lack = not metadata.get("store_array_data_equal_to_fill_value", False)
        driver = "zarr3" if metadata.get("use_zarr3") else "zarr"
        is_ocdbt = os.path.exists(os.path.join(directory, "manifest.ocdbt"))
        base = os.path.abspath(directory) + "/"
        for entry in metadata["tree_metadata"].values():
            keys = [str(part["key"]) for part in entry["key_metadata"]]
            name, kind = ".".join(keys), entry["value_metadata"]["value_type"]
            if kind in ("None", "Dict", "List", "Tuple", "NamedTuple"):
                continue  # an empty one: there is nothing of it
            if kind == "string":
                self.texts[before + name] = repr(strings[name])
                continue
            if entry["value_metadata"].get("skip_deserialize"):
                raise ValueError(f"{before}{name}: a value of type {kind}, which is not known")
            store = (
                {"driver": "ocdbt", "base": {"driver": "file", "path": base}, "path": name + "/"}
                if is_ocdbt
                else {"driver": "file", "path": base + name + "/"}
            )
            opening[before + name] = tensorstore.open(
                {"driver": driver, "kvstore": store, "recheck_cached_data": "open",
                 "fill_missing_data_reads": may_lack},
                read=True, open=True, context=self.context)  # fmt: skip

    def _place(self, opening: dict) -> None:
        """Where each lies in the file that is shown."""
        self.arrays: dict = {}
        header, at = {}, 0
        for name in sorted(opening):
            array = opening[name].result()
            dtype = array.dtype.name
            if dtype not in DTYPES:
                raise ValueError(f"{name}: dtype {dtype}, which is not known")
            bytes_ = array.dtype.numpy_dtype.itemsize * math.prod(array.shape)
            header[name] = {"dtype": DTYPES[dtype], "shape": list(array.shape),
                            "data_offsets": [at, at + bytes_]}  # fmt: skip
            self.arrays[name] = (at, at + bytes_, array)
            at += bytes_
        text = json.dumps(header).encode()
        self.header = struct.pack("<Q", len(text)) + text
        self.bytes = len(self.header) + at

    def list(self) -> list:
        return [[NAME, self.bytes, ""]]

    def read(self, index: int, start: int, length: int) -> bytes:
        end = start + length
        parts = [self.header[start:end]]
        start, end = (max(at - len(self.header), 0) for at in (start, end))
        for first, last, array in self.arrays.values():
            if max(start, first) < min(end, last):
                parts.append(self._of(array, max(start, first) - first, min(end, last) - first))
        return b"".join(parts)

    def _of(self, array, start: int, end: int) -> bytes:
        """Bytes [start, end) of its row-major image."""
        width = array.dtype.numpy_dtype.itemsize
        first, last = start // width, -(-end // width)
        skipped, parts = start - first * width, []
        while first < last:
            box, count = _box(array.shape, first, last)
            parts.append(array[box].read().result().tobytes())
            first += count
        image = b"".join(parts)
        return image[skipped : skipped + end - start]


if __name__ == "__main__":
    serve(lambda: Checkpoint(sys.argv[1]))
