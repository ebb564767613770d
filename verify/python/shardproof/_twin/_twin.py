"""The plain twin: the subject's model, built and loaded in the plainest way in one process.

What is expected of a subject is taken from it (verify/decisions/0036), once the verifier's own
reader has held its tensors against the files.
"""

import contextlib
import dataclasses
import io
import os

from torch import nn

from .._holdings import _model
from .._holdings._names import TRANSPARENT, without_wrappers
from ..case import dtype_argument
from . import _adapter, _code, _file_pieces

# What makes a framework take another path than the plain one.
_OF_JOBS = ("ACCELERATE_", "FSDP_")
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class CannotBuild(Exception):
    """Why there is no plain path here, and what would work."""

    @property
    def in_one_line(self) -> str:
        return str(self)


@dataclasses.dataclass
class Plain:
    """A model as the plain path leaves it. made_by: that path, for people. missing, unexpected: the
    keys that it calls so. optimizer, schedule: what the subject's plain(case) makes, or None."""

    model: nn.Module
    made_by: str
    missing: list[str] = dataclasses.field(default_factory=list)
    unexpected: list[str] = dataclasses.field(default_factory=list)
    optimizer: object = None
    schedule: object = None


def run(case, subject, writer, observer):
    """Builds the twin and records it at `ready`, with what the files have of it.

    subject: the subject's module, whose `plain(case)` is the way if it has one; or None.
    """
    plain = built(case, subject)
    tensors = _model.tensors_of(plain.model)
    pieces = _pieces(case, tensors, plain)
    if case.adapter:
        added, missing = _adapter.pieces_of(case, tensors, plain.model)
        pieces |= added
        plain.missing += missing
    observer(
        "ready", model=plain.model, optimizer=plain.optimizer, missing=plain.missing,
        unexpected=plain.unexpected,
    )  # fmt: skip
    writer.twin(
        made_by=plain.made_by,
        pieces=pieces,
        used_attributes=_code.uses(plain, tensors),
    )


def built(case, subject) -> Plain:
    """\\raises CannotBuild."""
    for name in list(os.environ):
        if name.startswith(_OF_JOBS) or name in _OF_RANKS:
            del os.environ[name]
    own = getattr(subject, "plain", None)
    if callable(own):
        return _by_subject(own, case)
    plain = _of_base(case)
    if case.adapter:
        try:
            plain.model, words = _adapter.injected(plain.model, case)
        except ImportError as error:
            raise CannotBuild(
                f"--adapter needs PEFT, which this environment lacks ({error}): expected --python "
                "FILE of one that has it"
            ) from error
        plain.made_by += words
    return plain


def _of_base(case) -> Plain:
    if case.model.get("factory") or case.model.get("tensors"):
        return _by_factory(case)
    return _by_transformers(case)


def _pieces(case, tensors, plain) -> dict:
    """Of every tensor of the state dict that no key of its shape holds under one of its names."""
    entries = {key: file for file, key in case.entries()}
    owners: dict[int, list] = {}
    for held in tensors:
        if held.persistent and (not held.also or held.name in entries):
            owners.setdefault(id(held.owner), []).append(held)
    lacking, used = [], set()
    for names in owners.values():
        own = [h.name for h in names if h.name in entries and _shape(entries, h.name) == h.shape]
        used.update(own)
        if not own and not any(held.name in plain.missing for held in names):
            lacking.append(names[0])
    left = [key for key in entries if key not in used and key not in plain.unexpected]
    return _file_pieces.pieces_of(lacking, lambda key: entries[key].get_tensor(key), left)


def _shape(entries, key) -> tuple:
    return tuple(entries[key].get_slice(key).get_shape())


def _by_subject(own, case) -> Plain:
    made = own(case)
    model, optimizer, schedule, *_ = (
        (*made, None) if isinstance(made, tuple) else (made, None, None)
    )
    plain = Plain(model, "plain(case) of the subject", optimizer=optimizer, schedule=schedule)
    present = set(case.dtypes)
    plain.missing = _absent(model, present)
    return plain


def _absent(model, present) -> list[str]:
    """Names of tensors that the state dict has and the files have under none of their names, if the
    files hold anything of the model under its names."""
    names: dict[int, list[str]] = {}
    for held in _model.tensors_of(model):
        if held.persistent and (not held.also or held.name in present):
            names.setdefault(id(held.owner), []).append(held.name)
    groups = list(names.values())
    if not any(name in present for group in groups for name in group):
        return []
    return [name for group in groups if not present.intersection(group) for name in group]


def _by_factory(case) -> Plain:
    model = case.build("cpu")
    state = case.state_dict()
    wanted = model.state_dict().keys()
    if not wanted & state.keys():
        wrappers = TRANSPARENT | {"module"}
        state = {without_wrappers(key, wrappers): value for key, value in state.items()}
    keys = model.load_state_dict(state, strict=False)
    loaded = {id(p) for n, p in model.named_parameters(remove_duplicate=False) if n in state}
    by_name = dict(model.named_parameters(remove_duplicate=False))
    missing = [key for key in keys.missing_keys if id(by_name.get(key)) not in loaded]
    factory = case.model.get("factory", "").rpartition(":")[2] or "case.build"
    return Plain(model, f"load_state_dict of {factory}()", missing, list(keys.unexpected_keys))


def _by_transformers(case) -> Plain:
    if not os.path.isfile(os.path.join(case.checkpoint, "config.json")):
        raise CannotBuild(
            f"{case.checkpoint} has no config.json, so nothing says which model it is of: "
            "expected --model FILE.py:FUNCTION, a function that builds it"
        )
    try:
        import transformers
    except ImportError as error:
        raise CannotBuild(
            f"{case.checkpoint} is of Transformers, which this environment lacks ({error}): "
            "expected --python FILE of one that has it, or --model FILE.py:FUNCTION"
        ) from error
    model_class = case.model_class()
    dtype = {dtype_argument(): "auto"}
    with contextlib.redirect_stdout(io.StringIO()):  # a library may ask whether it is a terminal
        model, info = model_class.from_pretrained(
            case.checkpoint, output_loading_info=True, local_files_only=True, **dtype
        )
    made_by = f"{model_class.__name__}.from_pretrained of transformers {transformers.__version__}"
    return Plain(model, made_by, list(info["missing_keys"]), list(info["unexpected_keys"]))
