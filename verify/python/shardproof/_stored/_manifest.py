"""Manifests: the digests of a model's tensors as an object, to send along with the weights."""

import array
import base64
import ctypes
import functools
import hashlib
import itertools
import json
import zlib

import torch

from .._digests._digest import digests_of, hex_of_blocks
from .._judging import _blocks
from ._checkpoint import SEAL_DIGEST, SEAL_SCHEMA, Checkpoint, Stored, Unreadable, stored_of_seal

SCHEMA = 3
_SEAL_BYTES_MAX = 1 << 28  # of some two million tensors


class Manifest:
    """The result of `seal`: name, dtype, shape and digest of each tensor.

    version: the number of the sync that it belongs to, or None. tensors: by name. len(): of them.
    blocks: of large tensors the digests of their stretches of `block_bytes`, the last one shorter.
    None of these changes.
    """

    def __init__(self, seal: dict, version: int | None = None, block_bytes=0, blocks=None):
        """seal: the document that `shardproof seal` writes. blocks: {name: digests, int64 [n, 2]}.
        \\raises ValueError if it is none."""
        if not isinstance(seal, dict) or (seal.get("schema"), seal.get("digest")) != (
            SEAL_SCHEMA, SEAL_DIGEST,
        ):  # fmt: skip
            raise ValueError(f"expected a seal of schema {SEAL_SCHEMA}")
        check_version(version)
        self.seal, self.version = seal, version
        self.block_bytes, self.blocks = block_bytes, blocks or {}
        try:
            self.tensors = stored_of_seal(seal, "the manifest")
        except (Unreadable, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the manifest has no tensors as a seal has them: {error}") from error

    def __len__(self):
        return len(self.tensors)

    def __eq__(self, other):
        return self.digest == other.digest if isinstance(other, Manifest) else NotImplemented

    def __hash__(self):
        return hash(self.digest)

    def __repr__(self):
        of = "" if self.version is None else f" of version {self.version}"
        return f"<shardproof.Manifest{of}: {len(self)} tensors, {self.digest[:12]}>"

    @functools.cached_property
    def layout(self) -> list[tuple]:
        """Name, dtype and shape of each tensor."""
        return [(name, each.dtype, each.shape) for name, each in self.tensors.items()]

    @functools.cached_property
    def digests(self) -> torch.Tensor:
        """Of the tensors in this order, int64 [n, 2]."""
        lanes = array.array("Q")
        for each in self.tensors.values():
            lanes.extend(each.digest)
        return digests_of(lanes)

    def renewed(self, digests: torch.Tensor, version: int | None) -> "Manifest":
        """One of the same tensors with other digests, as `digests` has them; behind them are those
        of blocks."""
        ends = list(itertools.accumulate(map(len, self.blocks.values()), initial=len(self)))
        blocks = {
            name: digests[begin:end]
            for name, (begin, end) in zip(self.blocks, itertools.pairwise(ends), strict=True)
        }
        digests = digests[: len(self)]
        lanes, hexes = array.array("Q", _bytes_of(digests)), hex_of_blocks(digests)
        found = Manifest({**self.seal, "tensors": {}}, version, self.block_bytes, blocks)
        for at, (name, old) in enumerate(self.tensors.items()):
            found.tensors[name] = Stored(
                old.dtype, old.dtype_name, old.shape, digest=(lanes[2 * at], lanes[2 * at + 1])
            )
            entry = self.seal["tensors"][name]
            said = hexes[32 * at : 32 * at + 32]
            found.seal["tensors"][name] = {**entry, "shape": [*old.shape], "digest": said}
        return found

    @property
    def title(self) -> str:
        return "manifest" if self.version is None else f"manifest of version {self.version}"

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what it says, in hexadecimal."""
        said = {"manifest": SCHEMA, "version": self.version, **self._held()}
        return hashlib.sha256(_bytes(said)).hexdigest()

    @property
    def weights_digest(self) -> str:
        """The same of all versions that hold the same weights."""
        return hashlib.sha256(_bytes(self.seal)).hexdigest()

    def to_json(self) -> str:
        """ASCII. The seal is packed: its names are much alike."""
        said = {"manifest": SCHEMA, "version": self.version, "sha256": self.digest}
        packed = base64.b64encode(zlib.compress(_bytes(self._held()))).decode()
        return _text({**said, "held": packed})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Manifest":
        """\\raises ValueError, one line, if it is cut short, was edited or is no manifest."""
        try:
            said = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"a manifest that cannot be read: {error}") from error
        if not isinstance(said, dict) or said.get("manifest") != SCHEMA:
            found = said.get("manifest") if isinstance(said, dict) else type(said).__name__
            raise ValueError(f"expected a manifest of schema {SCHEMA}, found {found!r}")
        seal, blocks = _unpacked(said.get("held"))
        try:
            manifest = cls(seal, said.get("version"), *blocks)
        except TypeError as error:
            raise ValueError(f"a manifest that cannot be read: {error}") from error
        _check_blocks(manifest)
        if said.get("sha256") != manifest.digest:
            raise ValueError(
                "the manifest was changed: its SHA-256 differs from the one that it states"
            )
        return manifest

    def as_checkpoint(self) -> Checkpoint:
        return Checkpoint("", self.title, dict(self.tensors))

    def _held(self) -> dict:
        blocks = {
            name: base64.b64encode(_bytes_of(each)).decode() for name, each in self.blocks.items()
        }
        return {"seal": self.seal, "block_bytes": self.block_bytes, "blocks": blocks}


def _check_blocks(manifest: Manifest):
    for name, digests in manifest.blocks.items():
        if (stored := manifest.tensors.get(name)) is None or stored.dtype is None:
            raise ValueError(f"a manifest that cannot be read: blocks of {name}, which it lacks")
        count = _blocks.count_of(stored.shape, stored.dtype.itemsize, manifest.block_bytes)
        if len(digests) != count:
            raise ValueError(
                f"a manifest that cannot be read: {name} has {count} blocks of "
                f"{manifest.block_bytes} bytes, found {len(digests)}"
            )


def _bytes_of(digests: torch.Tensor) -> bytes:
    return ctypes.string_at(digests.data_ptr(), digests.nbytes)


def check_version(version):
    """\\raises TypeError."""
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise TypeError(f"version is {version!r}: expected a whole number")


def _text(said: dict) -> str:
    return json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _bytes(said: dict) -> bytes:
    return _text(said).encode("utf-8", "surrogatepass")


def _unpacked(text) -> tuple[dict, tuple[int, dict]]:
    """\\returns the seal, and the size and digests of blocks. \\raises ValueError if it is cut
    short or was edited."""
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(base64.b64decode(text, validate=True), _SEAL_BYTES_MAX)
        if not reader.eof or reader.unused_data:
            raise ValueError("what it holds does not end where it should")
        held = json.loads(data.decode("utf-8", "surrogatepass"))
        blocks = {
            name: digests_of(base64.b64decode(each, validate=True))
            for name, each in held["blocks"].items()
        }
        return held["seal"], (int(held["block_bytes"]), blocks)
    except (ValueError, TypeError, RecursionError, RuntimeError, LookupError, AttributeError,
            zlib.error) as error:  # fmt: skip
        raise ValueError(f"a manifest that cannot be read: {error}") from error
