"""Which tensor of a checkpoint is which of a live model, by their names."""

import collections
import functools
import hashlib

import torch

from .._holdings._names import without_wrappers
from .._stored import _key_names
from .._stored._checkpoint import Checkpoint

STATE_PREFIX = "optimizer."
_MODEL, _STATE = "model", "optimizer"
_PREFIXES_MAX = 64  # that a rank tells of: those that most of its names are below


class Names:
    """Which tensor of the checkpoint is which of the model.

    pairs: {the model's name: the checkpoint's} of this rank's. sealed: digests of those that this
    rank judges, by the model's name. said: below which prefixes. extra: names of the checkpoint
    that no rank has.
    """

    def __init__(self, checkpoint: Checkpoint, own, prefix, held, transport):
        """own: this rank's tensors. held: of each rank the records that this one judges."""
        self.stored = checkpoint.tensors
        self.kind = "seal" if checkpoint.format == "seal" else "manifest"
        self._by_name: dict[str, str] = {}
        for name in self.stored:
            self._by_name.setdefault(without_wrappers(name), name)
        self._by_name |= {name: name for name in self.stored}
        share = sorted(set().union(*held))
        given = {_MODEL: prefix, _STATE: None}
        self._below = {}
        said = []
        for kind, what in ((_MODEL, "model"), (_STATE, "optimizer")):
            counts = self._counts(kind, share, given[kind], transport)
            below = given[kind]
            if below is None:
                below = _key_names.best_of(counts, checkpoint.path)
            if below is not None:
                self._below[kind] = below
                said.append(f"{counts[below]} names of the {what} below {below!r}")
        self.said = ": " + ", ".join(said) if said else ""
        self.pairs = self.stored_names(own)
        self.stored_as = self.stored_names(share)
        self.sealed = {name: self.stored[theirs].digest for name, theirs in self.stored_as.items()}
        self.extra = self._left_over(transport)

    def _counts(self, kind, share, given, transport) -> collections.Counter:
        """How many names of all ranks are below each prefix; of the prefix that is given, too."""
        wanted = {_within(name)[1] for name in share if _within(name)[0] == kind}
        own = _key_names.counts_of(wanted, self._by_name)
        if given is not None:
            own = {given: sum(given + name in self._by_name for name in wanted)}
        counts: collections.Counter = collections.Counter()
        for each in transport.objects(collections.Counter(own).most_common(_PREFIXES_MAX)):
            counts.update(dict(each))
        return counts

    def stored_names(self, names) -> dict[str, str]:
        """Of those of the model's names that the checkpoint has: its own, by the model's."""
        found = {}
        for name in names:
            kind, inner = _within(name)
            theirs = self._by_name.get(self._below[kind] + inner) if kind in self._below else None
            if theirs is not None:
                found[name] = theirs
        return found

    def digests_of(self, folds) -> dict[str, tuple[int, int]]:
        """Of the tensors that findings are about, and that a seal has: by the model's name."""
        named = [each.tensor for one in folds for each in one.findings if each.kind == "disk"]
        return {
            name: self.stored[theirs].digest
            for name, theirs in self.stored_names(named).items()
            if self.stored[theirs].digest is not None
        }

    def absent(self) -> list[str]:
        """Of `extra`, what no tensor that a rank has is equal to: one of tied names may be all that
        a model has."""
        extra = set(self.extra)
        held = {each.sealed for name, each in self.stored.items() if name not in extra}
        return [name for name in self.extra if self.stored[name].sealed not in held]

    @functools.cached_property
    def first_of(self) -> dict[tuple, str]:
        """The first name of each tensor of a seal, by what it is."""
        return {self.stored[name].sealed: name for name in sorted(self.stored, reverse=True)}

    def _left_over(self, transport) -> list[str]:
        names = sorted(self.stored)
        listed = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).digest()
        number = int.from_bytes(listed[:8], "little") >> 1
        if any(others != [number] for others in transport.everybody([number])):
            return []  # each rank was given a checkpoint of its own
        at = {name: index for index, name in enumerate(names)}
        taken = torch.zeros(len(names), dtype=torch.uint8)
        taken[[at[name] for name in self.pairs.values()]] = 1
        transport.largest(taken)
        return [name for name, mark in zip(names, taken.tolist(), strict=True) if not mark]


def _within(name: str) -> tuple[str, str]:
    """\\returns (whether it is the model's or an optimizer's, the name there)."""
    if name.startswith(STATE_PREFIX):
        return _STATE, name.removeprefix(STATE_PREFIX)
    return _MODEL, name
