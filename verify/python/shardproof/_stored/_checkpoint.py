"""What a checkpoint on disk holds: tensors, and where their bytes lie in its files.

Nothing of a tensor is read here but what says where it is. Pickles are read as data: of torch.save
by `torch.load(weights_only=True)`, of DCP as in _dcp.py.
"""

import dataclasses
import functools
import io
import json
import math
import os
import re
from collections.abc import Callable, Mapping

import torch

from .._dtypes import DTYPES

_TORCH_SAVE = (".pt", ".pth", ".bin", ".ckpt")
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_HEADER_BYTES_MAX = 100 << 20  # safetensors' own limit
SEAL_DIGEST = "src/digest/SPECIFICATION.md"
SEAL_SCHEMA = 2


class Unreadable(Exception):
    """Why a checkpoint, or a part of it, cannot be read: one line."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a piece lies: its first element at byte `offset` of the file. strides: of its dims, in
    elements, if they are not those of the row-major order."""

    path: str
    offset: int
    strides: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Piece:
    """A box of a tensor. locate: says where it lies; may read a file. \\raises Unreadable."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    locate: Callable[[], Place]


@dataclasses.dataclass(frozen=True)
class Stored:
    """One tensor. dtype: None if it is not known; dtype_name then says what the file says. digest:
    of a seal, which has no pieces."""

    dtype: torch.dtype | None
    dtype_name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = ()
    digest: tuple[int, int] | None = None

    @property
    def sealed(self) -> tuple:
        """Of a seal: what equal tensors have alike."""
        return self.dtype, self.shape, self.digest


@dataclasses.dataclass
class Checkpoint:
    """format: "DCP", "safetensors", "torch.save" or "seal". needed: the bytes that each file must
    have."""

    path: str
    format: str
    tensors: dict[str, Stored] = dataclasses.field(default_factory=dict)
    needed: dict[str, int] = dataclasses.field(default_factory=dict)

    def check_complete(self):
        """\\raises Unreadable if a file is missing or too short."""
        for path, size in self.needed.items():
            found = size_of(path)
            if found < size:
                raise Unreadable(f"{path}: it is cut short: it has {found} bytes of {size}")


def open_stored(path) -> Checkpoint:
    """A directory of DCP, a directory or file of safetensors or torch.save, the file of a seal, or
    a manifest.

    \\raises Unreadable.
    """
    if hasattr(path, "as_checkpoint"):
        return path.as_checkpoint()
    if not isinstance(path, str | bytes | os.PathLike):
        raise Unreadable(f"expected a path or a Manifest, found a {type(path).__name__}")
    path = os.fspath(path)
    if path[:1] in ("{", b"{") and not os.path.exists(path):
        raise Unreadable("expected a path or a Manifest, found the text of one: Manifest.from_json")
    try:
        return _of_directory(path) if os.path.isdir(path) else _of_file(path)
    except FileNotFoundError as error:
        raise Unreadable(f"{error.filename or path}: {error.strerror}") from error
    except (OSError, RecursionError, MemoryError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{path}: {type(error).__name__}: {_line(error)}") from error


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error


def inside(directory: str, name) -> str:
    """The path of a file that a directory's index names. \\raises Unreadable if it leads out."""
    if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split("/"):
        raise Unreadable(f"{directory}: it names a file outside itself: {name!r}")
    return os.path.join(directory, name)


def sizes_of(value, what: str) -> tuple[int, ...]:
    """\\raises Unreadable for anything but integers of at least 0."""
    if not isinstance(value, list | tuple) or not all(
        type(size) is int and size >= 0 for size in value
    ):
        raise Unreadable(f"{what}: expected integers of at least 0, found {value!r}")
    return tuple(value)


def _line(error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# ---- Which format ------------------------------------------------------------------------------


def _of_directory(path: str) -> Checkpoint:
    names = sorted(os.listdir(path))
    if ".metadata" in names:
        from ._dcp import open_dcp

        return open_dcp(path)
    if any(name.endswith((".distcp", ".metadata")) for name in names):
        raise Unreadable(
            f"{path}: there is no .metadata beside the files of DCP: the save did not "
            "finish, or used use_collectives=False"
        )
    if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        found = _safetensors_directory(path, names, "model.safetensors.index.json")
        training = os.path.join(path, "training")
        if os.path.exists(os.path.join(training, "state.safetensors.index.json")):
            state = _safetensors_directory(training, [], "state.safetensors.index.json")
            found.tensors = state.tensors | found.tensors
            found.needed |= state.needed
        return found
    return _torch_save_directory(path, names)


def _of_file(path: str) -> Checkpoint:
    with open(path, "rb") as file:
        magic = file.read(2)
    if path.endswith(".safetensors"):
        return _safetensors_files(path, {path: None})
    if magic == b"PK":
        return _torch_save_files(path, {path: None})
    if magic[:1] == b"{":
        return _seal(path)
    if magic[:1] == b"\x80":
        raise Unreadable(
            f"{path}: it is a bare pickle, which is not read because it could run any code"
        )
    return _safetensors_files(path, {path: None})


def _indexed(path: str, index: str) -> dict[str, set[str]]:
    """The files that an index names, each with its tensors."""
    with open(os.path.join(path, index), encoding="utf-8") as file:
        said = json.load(file)
    of_tensor = said.get("weight_map") if isinstance(said, Mapping) else None
    if not isinstance(of_tensor, Mapping):
        raise Unreadable(f"{os.path.join(path, index)}: expected a weight_map, found none")
    files: dict[str, set[str]] = {}
    for name, file in of_tensor.items():
        files.setdefault(inside(path, file), set()).add(name)
    return files


def _joined(path: str, format_name: str, each: dict[str, set[str] | None], read) -> Checkpoint:
    """The tensors of some files; of one with an index, those that it names."""
    checkpoint = Checkpoint(path, format_name)
    for file, names in each.items():
        found = read(file)
        if names is not None:
            if missing := names - found.keys():
                raise Unreadable(
                    f"{file}: there is no tensor {min(missing)!r}, which the index names"
                )
            found = {name: found[name] for name in names}
        if twice := found.keys() & checkpoint.tensors.keys():
            raise Unreadable(f"{path}: two files have a tensor {min(twice)!r}")
        checkpoint.tensors |= found
    return checkpoint


# ---- safetensors -------------------------------------------------------------------------------


def _safetensors_directory(path: str, names: list[str], index: str) -> Checkpoint:
    if os.path.exists(os.path.join(path, index)):
        return _safetensors_files(path, _indexed(path, index))
    indices = [name for name in names if name.endswith(".safetensors.index.json")]
    if len(indices) == 1:
        return _safetensors_files(path, _indexed(path, indices[0]))
    files = [name for name in names if name.endswith(".safetensors")]
    for name in files:
        numbered = _NUMBERED.fullmatch(name)
        for i in range(1, int(numbered[3]) + 1) if numbered else ():
            other = f"{numbered[1]}-{i:05}-of-{numbered[3]}.safetensors"
            if other not in names:
                raise Unreadable(f"{path}: there is no {other} beside {name}")
    return _safetensors_files(path, {os.path.join(path, name): None for name in files})


def _safetensors_files(path, files) -> Checkpoint:
    return _joined(path, "safetensors", files, _safetensors_file)


def _safetensors_file(path: str) -> dict[str, Stored]:
    """By its header, after the library has found that it fits the file."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="pt"):
            pass
    except FileNotFoundError as error:
        raise Unreadable(f"{path}: No such file or directory") from error
    except safetensors.SafetensorError as error:
        raise Unreadable(f"{path}: {_line(error)}") from error
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_BYTES_MAX:
            raise Unreadable(f"{path}: its header has {length} bytes")
        header = json.loads(file.read(length))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = sizes_of(entry["shape"], f"{path}: {name!r}: shape")
        place = Place(path, 8 + length + sizes_of(entry["data_offsets"], path)[0])
        piece = Piece((0,) * len(shape), shape, functools.partial(_same, place))
        dtype = DTYPES.get(entry["dtype"])
        tensors[name] = Stored(dtype, str(dtype or entry["dtype"]), shape, (piece,))
    return tensors


def _same(place: Place) -> Place:
    return place


# ---- torch.save --------------------------------------------------------------------------------


def _torch_save_directory(path: str, names: list[str]) -> Checkpoint:
    if "pytorch_model.bin" in names:
        return _torch_save_files(path, {os.path.join(path, "pytorch_model.bin"): None})
    if "pytorch_model.bin.index.json" in names:
        return _torch_save_files(path, _indexed(path, "pytorch_model.bin.index.json"))
    files = [name for name in names if name.endswith(_TORCH_SAVE) and not name.startswith(".")]
    if not files:
        raise Unreadable(
            f"{path}: there is no checkpoint in it: expected DCP, safetensors or torch.save"
        )
    return _torch_save_files(path, {os.path.join(path, name): None for name in files})


def _torch_save_files(path, files) -> Checkpoint:
    return _joined(path, "torch.save", files, _torch_save_file)


def _torch_save_file(path: str) -> dict[str, Stored]:
    size = size_of(path)
    with open(path, "rb") as file:
        state = load_archive(file, 0, size, path)
    found: dict[str, Stored] = {}
    _flatten(state, "", path, found)
    return found


def _flatten(value, name: str, path: str, found: dict[str, Stored]):
    """Names as DCP gives them: the keys that lead to a tensor, joined by dots."""
    if isinstance(value, torch.Tensor):
        place = place_in_archive(value, path, 0, name)
        shape = tuple(value.shape)
        piece = Piece((0,) * len(shape), shape, functools.partial(_same, place))
        found[name or "value"] = Stored(value.dtype, str(value.dtype), shape, (piece,))
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            _flatten(item, f"{name}.{key}" if name else str(key), path, found)


class _Slice(io.RawIOBase):
    """`length` bytes of a file from `start` on, as a file."""

    def __init__(self, file, start, length):
        super().__init__()
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at += offset
        return self._at

    def readinto(self, buffer):
        self._file.seek(self._start + self._at)
        count = self._file.readinto(memoryview(buffer)[: max(0, self._length - self._at)])
        self._at += count
        return count


def load_archive(file, start: int, length: int, path: str):
    """What torch.save wrote, with tensors that have no memory, but know where in the archive their
    bytes are. \\raises Unreadable."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            return torch.load(_Slice(file, start, length), weights_only=True, map_location="cpu")
    except Exception as error:  # of torch.load and of whatever is in the file
        # What follows the first sentence is advice that does not fit here.
        raise Unreadable(f"{path}: {_line(error).partition('. ')[0]}") from error


def place_in_archive(tensor, path: str, start: int, name: str) -> Place:
    """Where the bytes of a tensor of `load_archive` are. \\raises Unreadable."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise Unreadable(f"{path}: {name!r}: a tensor of an unknown kind")
    storage = tensor.untyped_storage()
    size = tensor.element_size()
    spans = zip(tensor.shape, tensor.stride(), strict=True)
    reach = tensor.storage_offset() + 1 + sum((n - 1) * step for n, step in spans)
    if tensor.numel() and reach * size > storage.nbytes():
        raise Unreadable(f"{path}: {name!r}: it reaches beyond its storage")
    first = getattr(storage, "_checkpoint_offset", None)
    if first is None:
        raise Unreadable(
            f"{path}: {name!r}: torch {torch.__version__} does not say where its bytes are"
        )
    strides = None if tensor.is_contiguous() else tuple(tensor.stride())
    return Place(path, start + first + tensor.storage_offset() * size, strides)


# ---- A seal ------------------------------------------------------------------------------------


def _seal(path: str) -> Checkpoint:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    said = json.loads(text)
    if "manifest" in said:
        from ._manifest import Manifest

        return Manifest.from_json(text).as_checkpoint()
    if said.get("schema") != SEAL_SCHEMA or said.get("digest") != SEAL_DIGEST:
        raise Unreadable(f"{path}: expected a seal of schema {SEAL_SCHEMA}, found another file")
    return Checkpoint(path, "seal", stored_of_seal(said, path))


def stored_of_seal(said: Mapping, where: str) -> dict[str, Stored]:
    """The tensors of a seal's document. \\raises Unreadable."""
    tensors = {}
    for name, entry in said["tensors"].items():
        digest, dtype = entry["digest"], DTYPES.get(entry["dtype"])
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{32}", digest):
            raise Unreadable(f"{where}: {name!r}: expected a digest, found {digest!r}")
        tensors[name] = Stored(
            dtype,
            str(dtype or entry["dtype"]),
            sizes_of(entry["shape"], f"{where}: {name!r}: shape"),
            digest=(int(digest[:16], 16), int(digest[16:], 16)),
        )
    return tensors


def elements_of(shape) -> int:
    return math.prod(shape)
