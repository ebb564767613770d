"""Which part of which tensor of a live model is which part of a checkpoint's, under a map.

The language and its engine are those of `shardproof compare --map` (verify/maps): the command is
asked, once for all ranks, and knows of the tensors nothing but names, dtypes and shapes.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import pickle
import subprocess
import tempfile
from collections.abc import Mapping

from .. import _program
from .._dtypes import DTYPES, NAMES

_PLAN_S = 60.0
_MOST = 8  # plans that are kept
_NAMES = {str(dtype): name for dtype, name in NAMES.items()}


@dataclasses.dataclass(frozen=True)
class Box:
    """Part of a tensor: its first index and its size, per dim."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Pair:
    """The checkpoint's box is the model's after the steps: ("reshape", shape), ("permute", order),
    ("bits", dtype). again: other elements of the model are held against the checkpoint's box, too.
    """

    theirs: Box
    own: Box
    steps: tuple[tuple[str, object], ...]
    again: bool = False


@dataclasses.dataclass(frozen=True)
class Fill:
    """A box of the model's that holds one value, whose bytes these are."""

    own: Box
    value: bytes


@dataclasses.dataclass(frozen=True)
class Misfit:
    """Names of the checkpoint and of the model, whose shapes under the map are not the same."""

    theirs: tuple[str, ...]
    own: tuple[str, ...]
    what: str


@dataclasses.dataclass
class Plan:
    """pairs, fills: by the model's names. left: (names of the checkpoint, why they are not
    compared). lies: where the parts of pairs lie in memory, by the model's name and the pair's
    number; filled as they are looked for."""

    pairs: dict[str, list[Pair]] = dataclasses.field(default_factory=dict)
    fills: dict[str, list[Fill]] = dataclasses.field(default_factory=dict)
    left: list[tuple[tuple[str, ...], str]] = dataclasses.field(default_factory=list)
    misfits: list[Misfit] = dataclasses.field(default_factory=list)
    lies: dict[tuple[str, int], tuple] = dataclasses.field(default_factory=dict)

    def names(self) -> set[str]:
        """Of the checkpoint: those of which something is said."""
        pairs = itertools.chain(*self.pairs.values())
        misfits = itertools.chain(*(each.theirs for each in self.misfits))
        return {*(pair.theirs.name for pair in pairs), *misfits, *self.left_names()}

    def left_names(self) -> set[str]:
        return {name for names, _ in self.left for name in names}

    def has_once(self, pair: Pair) -> bool:
        """Of one that is held against the same box again: whether the model's tensor has it once
        without."""
        return any(
            each.theirs == pair.theirs and not each.again for each in self.pairs[pair.own.name]
        )

    def shares(self, name: str) -> bool:
        """Whether one of the model's tensors has a part of the checkpoint's several times."""
        pairs = [pair for each in self.pairs.values() for pair in each if pair.theirs.name == name]
        return any(pair.again and self.has_once(pair) for pair in pairs)

    def follows(self, name: str, shape) -> bool:
        """Whether every element of the model's tensor is held against one of the checkpoint's."""
        pairs = self.pairs.get(name, ())
        boxes = [pair.own for pair in pairs if not pair.again or self.has_once(pair)]
        boxes += [fill.own for fill in self.fills.get(name, ())]
        return bool(boxes) and sum(math.prod(box.sizes) for box in boxes) == math.prod(shape)


class BadMap(Exception):
    """Why a map cannot be used: one line."""


def words_of(map_) -> list[str]:
    """What `map` was given as: a rule, a file of rules, the name of a ready map, or several."""
    if isinstance(map_, str | os.PathLike):
        map_ = [map_]
    words = [os.fspath(each) for each in map_]
    if not words or not all(isinstance(each, str) and each for each in words):
        raise TypeError("map: expected rules, files of rules or names of ready maps")
    return words


def said_of(map_, config) -> list:
    """What a map and a config are now: of files what is in them."""
    words = [[word, _text_in(word)] for word in words_of(map_)]
    text = _config_text(config)
    folder = text is not None and os.path.isdir(text)
    return [words, text, _text_in(os.path.join(text, "config.json") if folder else text)]


def _text_in(path: str | None) -> str | None:
    """None of a rule, the name of a ready map, or the text of a config."""
    if path is None or not os.path.isfile(path):
        return None
    return pathlib.Path(path).read_bytes().decode("latin-1")


_kept: dict[bytes, Plan] = {}


def plan_of(map_, config, checkpoint, prefix, own, transport) -> Plan:
    """Every rank calls it. own: {name: (dtype as torch names it, shape)} of this rank's tensors.
    checkpoint: of all ranks the same; prefix: of the model's names in it, which the map leaves out.
    \\raises RuntimeError on all ranks alike.
    """
    cause, words = None, []
    try:
        words = words_of(map_)
        said = said_of(words, config)
        key = _key([said, _listed(own.items()), _theirs(checkpoint, prefix)])
    except Exception as error:
        cause, key = error, b""
    # Any rank's tensors may be others than in the call before.
    known = [int(key in _kept), int(cause is not None)]
    said = transport.everybody(known)
    if any(failed for _, failed in said):
        transport.fail("cannot use the map", cause)
    if all(kept for kept, _ in said):
        return _kept[key]
    everybody = transport.to_first(own)
    answer = b""
    if everybody is not None:
        try:
            names = {name: each for tensors in everybody for name, each in tensors.items()}
            answer = pickle.dumps(_asked(words, config, checkpoint, prefix, names))
        except Exception as error:
            cause, answer = error, b""
    (found,) = transport.of_some(answer).values() or (None,)
    if found is None:
        transport.fail("cannot use the map", cause)
    plan = pickle.loads(found)
    while len(_kept) >= _MOST:
        _kept.pop(next(iter(_kept)))
    _kept[key] = plan
    return plan


def _key(parts) -> bytes:
    return hashlib.blake2b(json.dumps(parts).encode("utf-8", "surrogatepass")).digest()


def _listed(tensors) -> list:
    """[name, safetensors' name of the dtype, shape]; those without a name of it are left out."""
    return [
        [name, _NAMES[dtype], list(shape)] for name, (dtype, shape) in tensors if dtype in _NAMES
    ]


def _theirs(checkpoint, prefix) -> list:
    return _listed(
        (name.removeprefix(prefix), (str(each.dtype), each.shape))
        for name, each in checkpoint.tensors.items()
        if name.startswith(prefix)
    )


def _config_text(config) -> str | None:
    if config is None or isinstance(config, str | os.PathLike):
        return None if config is None else os.fspath(config)
    said = config if isinstance(config, Mapping) else config.to_dict()
    return json.dumps(said, default=str)


def _asked(words, config, checkpoint, prefix, own) -> Plan:
    program = _program.find()
    if program is None:
        raise BadMap("the command `shardproof`, which reads maps, is neither beside this package "
                     "nor in PATH")  # fmt: skip
    text = _config_text(config)
    with tempfile.TemporaryDirectory(prefix="shardproof-") as folder:
        places = [checkpoint.path] if checkpoint.path else []
        if text is not None and not os.path.exists(text):
            pathlib.Path(folder, "config.json").write_text(text)
            places = [folder]
        elif text is not None:
            places = [text]
        asked = {
            "map": words, "config": places, "a": _theirs(checkpoint, prefix),
            "b": _listed(own.items()),
        }  # fmt: skip
        done = subprocess.run(
            [program, "map-plan"], input=json.dumps(asked), capture_output=True, text=True,
            timeout=_PLAN_S,
        )  # fmt: skip
    if done.returncode != 0:
        raise BadMap((done.stderr or done.stdout).strip().removeprefix("shardproof: ")[-500:])
    return _read(json.loads(done.stdout), {name for name, _, _ in asked["a"]})


def _read(said, given: set[str]) -> Plan:
    """given: the checkpoint's names."""
    plan = Plan()
    for theirs, own, steps, again in said["pairs"]:
        if own[0] is None:
            plan.left.append(((theirs[0],), "the map compares it with a single value"))
            continue
        box = _box(own)
        if theirs[0] is None:
            plan.fills.setdefault(box.name, []).append(Fill(box, bytes(theirs[1])))
            continue
        pair = Pair(_box(theirs), box, tuple(map(_step, steps)), again)
        plan.pairs.setdefault(box.name, []).append(pair)
    plan.left += [(tuple(names), why) for names, why in said["left"]]
    for theirs, own, expected, shape in said["misfits"]:
        what = f"{', '.join(own)} is {shape} in the model, and under the map it comes to {expected}"
        plan.misfits.append(Misfit(tuple(theirs), tuple(own), what))
    if out := given - plan.names() - {*said["only_in_a"]}:
        plan.left.append((tuple(sorted(out)), "the map leaves it out"))
    return plan


def _box(said) -> Box:
    name, offsets, sizes = said
    return Box(name, tuple(offsets), tuple(sizes))


def _step(said):
    kind, value = said
    return (kind, DTYPES[value]) if kind == "bits" else (kind, tuple(value))
