"""What a rank of a subject that trains leaves for the plain twin: moments, what came between."""

import dataclasses

import torch

WHY_NOT = "why_not"  # a file with the reason why no more was kept
END = "end"  # in place of a stage: of what came after the last one


@dataclasses.dataclass
class Part:
    """What a rank has of a tensor. runs: as Holding's, local elements being those of `local`, which
    is flat. A complex one is kept as pairs of real numbers, which are its last dim."""

    dtype: torch.dtype
    shape: tuple
    runs: list
    local: torch.Tensor
    kind: str = "parameter"
    trainable: bool = False
    is_complex: bool = False


@dataclasses.dataclass
class Batch:
    """A loss that was computed. case: the fields of the Case whose `loss` was called. weight: what
    backward began with, 0 if it never began; None if it could not. rng, rng_after: before and after
    it. dtypes: in which the forward had each parameter and buffer. terms: of how many targets the
    loss is a mean, summed: of how many it is a sum; 0 if that is not known. talks: which function
    of the model communicated with other ranks in its forward pass. modes: by name, of modules that
    are not in the model's mode: whether they were training."""

    case: dict
    step: int
    rng: torch.Tensor
    trains: bool
    autocast: torch.dtype | None
    loss: float = 0.0
    rng_after: torch.Tensor | None = None
    weight: float | None = None
    dtypes: dict = dataclasses.field(default_factory=dict)
    terms: int = 0
    summed: int = 0
    talks: str = ""
    modes: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Clip:
    """A call of clip_grad_norm_. norm: what it returned, if that is a number on every rank. part:
    where it is yet to be made up of ranks' parts, this rank's, and how many ranks have the same.
    names: of those that had a gradient. before: what the gradients were, in words, by id."""

    norm: float | None
    norm_max: float
    norm_type: float
    names: list
    before: dict = dataclasses.field(default_factory=dict)
    part: tuple[float, int] | None = None


@dataclasses.dataclass
class Scaled:
    """A loss was multiplied for a GradScaler. state: the numbers in its state dict."""

    scale: float
    state: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Reduced:
    """A collective has added up over ranks in a narrow dtype."""

    dtype: torch.dtype


@dataclasses.dataclass
class OwnTerms:
    """A backward began from more than a loss that was computed: the job adds terms of its own."""


@dataclasses.dataclass
class Zeroed:
    """Gradients were given up, after a step or in place of one. number: of whose optimizer, as of a
    Step; -1: those of a module, or of what is not observed."""

    number: int = -1


@dataclasses.dataclass
class Again:
    """A sampler that shuffles has begun to go through the data once more, in the order in which
    steps have gone through it. epoch: of both times."""

    sampler: str
    epoch: int


@dataclasses.dataclass
class Step:
    """An optimizer is about to step. number: among those that are observed. options: of each group.
    grads: by name, None where there is none; only of what requires one. own: other attributes of
    the optimizer that are plain values. evaluates: whether it computes losses within its step, in a
    way that is not known. altered_by: which hook of the job's own may have changed grads. rows: of
    gradients that were sparse, by name, the indices of what they have."""

    number: int
    options: list
    grads: dict
    own: dict
    evaluates: bool = False
    altered_by: str = ""
    rows: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Stepper:
    """An optimizer. groups: (options, names). serial: tells it from one that was made anew."""

    kind: type
    groups: list
    serial: int = 0


@dataclasses.dataclass
class Moment:
    """A rank at an observed stage. state: by parameter, then by key. copies: of F32 parameters that
    are stepped in place of the model's. since: what came since the stage before it. averages: of
    the weights, by parameter."""

    stage: str
    step: int
    model: dict
    state: dict
    copies: dict
    steppers: list
    since: list
    averages: dict = dataclasses.field(default_factory=dict)
