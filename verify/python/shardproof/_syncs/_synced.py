"""What a model was compared with before, so that a tensor that is not the new one can be named: the
manifests that came first, and which parts have not changed since."""

import dataclasses

from .._digests import _digest
from .._stored._checkpoint import Stored
from .._stored._manifest import Manifest

_KEPT = 4  # manifests


@dataclasses.dataclass
class Synced:
    """manifests: the last ones, the newest last. parts: {name: {rank: digest}} in the last
    comparison with a manifest, of names that this rank judges; earlier: in the last one with
    another manifest than that, which may be compared with again and again."""

    manifests: list[Manifest] = dataclasses.field(default_factory=list)
    parts: dict[str, dict[int, tuple[int, int]]] = dataclasses.field(default_factory=dict)
    earlier: dict[str, dict[int, tuple[int, int]]] = dataclasses.field(default_factory=dict)

    def newest_version(self) -> int | None:
        return max((each.version for each in self.manifests if each.version is not None),
                   default=None)  # fmt: skip

    def older(self, manifest: Manifest | None) -> list[Manifest]:
        """Those that the model was compared with before this one."""
        return [each for each in self.manifests if each != manifest]

    def unchanged(self, name: str, part: dict, manifest: Manifest | None) -> tuple[int, ...]:
        """The ranks whose part of a tensor is what it was when the model was compared with another
        manifest. part: {rank: digest} now."""
        before = (self.earlier if self._is_last(manifest) else self.parts).get(name, {})
        return tuple(rank for rank, digest in part.items() if before.get(rank) == digest)

    def add(self, manifest: Manifest, parts: dict[str, dict[int, tuple[int, int]]]):
        if not self._is_last(manifest):
            self.earlier = self.parts
        self.manifests, self.parts = [*self.older(manifest), manifest][-_KEPT:], parts

    def _is_last(self, manifest: Manifest | None) -> bool:
        return bool(self.manifests) and self.manifests[-1] == manifest


def explanation(name: str, digest, wanted: Stored, first_of, before: list[Manifest]) -> str:
    """What a whole tensor holds that is not what it should; "" if that is not known. wanted: what
    it should; first_of: the first name of each tensor of the manifest, by what it is; before: of
    older syncs, the newest last."""
    held = dataclasses.replace(wanted, digest=digest).sealed
    for manifest in reversed(before):
        old = manifest.tensors.get(name)
        if old is not None and old.sealed == held:
            of = "an earlier sync" if manifest.version is None else f"version {manifest.version}"
            return f"it is still that of {of}"
    if digest == (0, 0):
        return "all of it is 0"
    return f"it holds what {first_of[held]} should" if held in first_of else ""


def differs(digest, expected, what: str) -> str:
    return f"its digest is {_digest.hex_of(digest)}, in the {what} {_digest.hex_of(expected)}"
