"""What a directory of torch.distributed.checkpoint holds, by its .metadata.

The library reads that file by `pickle.load`, which runs whatever it names. Here a pickled object
becomes a record of its fields, and a name that no checkpoint needs is refused.
"""

import functools
import os
import pickle

import torch

from ._checkpoint import (
    Checkpoint,
    Piece,
    Place,
    Stored,
    Unreadable,
    inside,
    load_archive,
    place_in_archive,
    size_of,
    sizes_of,
)

_METADATA = "torch.distributed.checkpoint.metadata"
_RECORDS = {
    (_METADATA, name)
    for name in ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties",
                 "ChunkStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")
} | {("torch.distributed.checkpoint.filesystem", "_StorageInfo")}  # fmt: skip


class _Record:
    """An object that was pickled, as data: the name of its class, and its fields."""

    kind = ""

    def __init__(self, *arguments):
        self.fields = {}
        self.state = ()

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.fields = state
        else:
            self.fields, self.state = {}, state


class _Reader(pickle.Unpickler):
    """Makes records, tuples, dicts, texts and numbers, and calls nothing else."""

    def find_class(self, module, name):
        if (module, name) in _RECORDS:
            return _record_of(name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        known = {
            ("torch", "Size"): tuple,
            ("torch.serialization", "_get_layout"): _text,
            ("builtins", "getattr"): _member,
            ("collections", "OrderedDict"): dict,
        }
        if (module, name) in known:
            return known[module, name]
        if module.partition(".")[0] == "pathlib":
            return _text
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not read")


@functools.cache
def _record_of(name: str):
    return type(name, (_Record,), {"kind": name})


def _text(*parts) -> str:
    return "/".join(map(str, parts))


def _member(owner, name) -> str:
    """Of an enumeration, which is pickled by getattr."""
    return str(name)


def open_dcp(directory: str) -> Checkpoint:
    """\\raises Unreadable."""
    path = os.path.join(directory, ".metadata")
    try:
        with open(path, "rb") as file:
            root = _Reader(file).load()
    except Exception as error:  # whatever a damaged pickle raises
        line = (str(error).splitlines() or [""])[0]
        raise Unreadable(f"{path}: {type(error).__name__}: {line}") from error
    entries, places = _field(root, "state_dict_metadata", path), _field(root, "storage_data", path)
    if not isinstance(entries, dict) or not isinstance(places, dict):
        raise Unreadable(f"{path}: expected the Metadata of a checkpoint, found something else")
    checkpoint = Checkpoint(directory, "DCP")
    items = _items(directory, places, path, checkpoint.needed)
    for name, entry in entries.items():
        if getattr(entry, "kind", "") == "TensorStorageMetadata":
            checkpoint.tensors[name] = _tensor(name, entry, items, path)
        elif (name, None) not in items:
            raise Unreadable(f"{path}: {name!r}: it does not say where its bytes are")
    return checkpoint


def _field(record, name, path):
    if not isinstance(record, _Record) or name not in record.fields:
        raise Unreadable(f"{path}: expected a field {name!r}, found none")
    return record.fields[name]


def _items(directory, places, path, needed):
    """{(name, offsets): (file, first byte, bytes, why it cannot be read)}; adds to `needed`."""
    items = {}
    for index, info in places.items():
        name, offsets = _field(index, "fqn", path), index.fields.get("offset")
        if getattr(info, "kind", "") != "_StorageInfo":
            raise Unreadable(f"{path}: {name!r}: it was not written to files")
        file = inside(directory, _field(info, "relative_path", path))
        start, length = sizes_of(
            [_field(info, "offset", path), _field(info, "length", path)], f"{path}: {name!r}"
        )
        needed[file] = max(needed.get(file, 0), start + length)
        why = "it was transformed when it was written" if info.fields.get(
            "transform_descriptors"
        ) else ""  # fmt: skip
        key = (name, None if offsets is None else sizes_of(offsets, f"{path}: {name!r}"))
        items[key] = (file, start, length, why)
    return items


def _tensor(name, entry, items, path) -> Stored:
    properties = _field(entry, "properties", path)
    state = getattr(properties, "state", ())
    dtype = state[0] if state else _field(properties, "dtype", path)
    if not isinstance(dtype, torch.dtype):
        raise Unreadable(f"{path}: {name!r}: expected a dtype, found {dtype!r}")
    what = f"{path}: {name!r}"
    shape = sizes_of(_field(entry, "size", path), what)
    pieces = []
    for chunk in _field(entry, "chunks", path):
        offsets = sizes_of(_field(chunk, "offsets", path), what)
        sizes = sizes_of(_field(chunk, "sizes", path), what)
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            raise Unreadable(f"{what}: a chunk with another number of dims than the tensor")
        if (name, offsets) not in items:
            raise Unreadable(
                f"{what}: it does not say where the bytes of the chunk at {list(offsets)} are"
            )
        locate = functools.partial(_locate, name, items[name, offsets], dtype, sizes)
        pieces.append(Piece(offsets, sizes, locate))
    return Stored(dtype, str(dtype), shape, tuple(pieces))


def _locate(name, item, dtype, sizes) -> Place:
    """Each item of a file is an archive of torch.save: it says where in it the bytes are."""
    path, start, length, why = item
    if why:
        raise Unreadable(f"{path}: {name!r}: {why}")
    found = size_of(path)
    if found < start + length:
        raise Unreadable(
            f"{path}: it has {found} bytes, {start + length} are needed: it is cut short"
        )
    with open(path, "rb") as file:
        tensor = load_archive(file, start, length, path)
    if (
        not isinstance(tensor, torch.Tensor)
        or tensor.dtype != dtype
        or tuple(tensor.shape) != sizes
    ):
        raise Unreadable(f"{path}: {name!r}: expected a {dtype} {list(sizes)} in it")
    return place_in_archive(tensor, path, start, name)
