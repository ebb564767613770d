"""What optimizers were told of each parameter that they step: the numbers that a step is computed
with; and how many steps each has taken. Ranks that hold a parameter together must step it alike."""

import numbers
from collections.abc import Sequence

import torch

from . import _optimizer
from ._groups import Groups
from ._holding import Holding
from ._layout import local_runs

# Each is a number, a truth, or up to three of them.
NAMES = (
    "lr", "weight_decay", "betas", "eps", "momentum", "dampening", "alpha", "rho", "lambd",
    "lr_decay", "momentum_decay", "nesterov", "amsgrad", "maximize", "centered",
    "decoupled_weight_decay", "etas", "step_sizes", "clip_threshold", "beta2_decay", "ns_steps",
    "initial_lr",
)  # fmt: skip
# These say in which way a step is computed, or of which parameters.
_NO_NUMBERS = {"params", "foreach", "fused", "capturable", "differentiable"}
_EACH = 3
_SEVERAL = ("betas", "etas", "step_sizes")
# Kinds of holdings: what one optimizer was told and another was not says nothing of absence.
TOLD = OPTIONS, STEPS = "options", "steps"


def count_of(held) -> int:
    """How many holdings, or records, are of tensors of the job's."""
    return sum(each.kind not in TOLD for each in held)


def name_of(tensor: str, index: int) -> str:
    """Of the option that an element is of."""
    others = tensor.rpartition(".options")[2].strip("[]")
    names = others.split(", ") if others else NAMES
    name, place = names[index // _EACH], index % _EACH
    return f"{name}[{place}]" if place or name in _SEVERAL else name


def held_of(model, optimizer, said) -> dict[str, Holding]:
    """Of each parameter that an optimizer steps, "<FQN>.options": F64, in the order of NAMES, NaN
    where there is none; "<FQN>.options[d, k]" of others. Those of which the same is said are one
    object. Of each optimizer, how many steps it has taken: I64. model: as `_model.read` reads it.
    """
    if optimizer is None:
        return {}
    copied = _optimizer.copied_parameters(model, optimizer)
    owners = _optimizer.parameters_by_owner(model.tensors)
    found: dict[str, Holding] = {}
    first_of: dict[str, str] = {}  # by name, the optimizer that has it first
    for of, group, parameters in _optimizer.groups_by_optimizer(optimizer):
        stepped = []
        for parameter in parameters:
            parts = [part.own for part in model.flat.parts.get(id(parameter), [])]
            stepped += owners.get(id(parameter)) or parts or copied.get(id(parameter), [])
        for leaf, values in _values(group).items():
            same: dict[Groups | None, Holding] = {}  # by what is known of the parameter
            for own in stepped:
                held = same.get(own.groups)
                if held is None:
                    alike = own.groups and Groups((said.rank,), own.groups.members)
                    held = same[own.groups] = _held(OPTIONS, values, torch.float64, alike)
                name = f"{own.name}.{leaf}"
                if first_of.setdefault(name, of) != of:  # another steps it, too
                    name = f"{own.name}.<optimizer {of}>.{leaf}"
                found.setdefault(name, held)
    for name, (taken, ranks) in steps_of(model, optimizer, said).items():
        alike = None if ranks is None else Groups((said.rank,), ranks)
        found[f"{name}.steps"] = _held(STEPS, [taken], torch.int64, alike)
    return found


def steps_of(model, optimizer, said) -> dict[str, tuple[int, tuple[int, ...] | None]]:
    """By name of an optimizer: the most steps that it has taken of any parameter, and the ranks of
    the job that has it. Nothing of an optimizer that leaves parameters to other ranks, or has no
    state of some: what it has may have had a gradient only now and then.
    """
    ranks = _ranks_of_job(model, said)
    every = _optimizer.optimizers_in(optimizer)
    found = {}
    for number, each in enumerate(every):
        counts = []
        for owned in _optimizer.optimizer_state(model.tensors, each, model.flat, model.order):
            if owned.alone:
                return {}
            counts.append((owned, owned.state.get("step")))
        stepped = {id(owned.own.owner) for owned, _ in counts if owned.own is not None}
        stepped |= {id(part.own.owner) for owned, _ in counts for part in owned.parts}
        trainable = [held for held in model.order if held.requires_grad]
        if len(every) == 1 and any(id(held.owner) not in stepped for held in trainable):
            return {}
        taken = _highest([count for _, count in counts])
        if taken is not None:
            name = f"<optimizer {_optimizer.place_of(number, every)}>"
            found[name] = (taken, ranks)
    return found


def taken_and_rate(optimizer) -> tuple[int | None, float | None]:
    """The most steps that it has taken of any parameter of this rank, and the highest rate of its
    groups; None where it does not say."""
    every = _optimizer.optimizers_in(optimizer)
    states = [state for each in every for state in each.state.values() if hasattr(state, "get")]
    rates = [group.get("lr") for each in every for group in getattr(each, "param_groups", ())]
    known = [float(each) for each in rates if isinstance(each, int | float | torch.Tensor)]
    taken = _highest([state.get("step") for state in states]) if states else 0
    return taken, max(known, default=None)


def _ranks_of_job(model, said) -> tuple[int, ...] | None:
    """Those that the job's axes lead to, or that have any of the parameters in common with this
    rank; None if nobody said which these are."""
    if said.axes is not None:
        return said.axes.reached(said.axes.names)
    stated = [held.groups.members for held in model.order if held.groups is not None]
    return tuple(sorted({rank for members in set(stated) for rank in members})) or None


def _highest(counts) -> int | None:
    """Of whole numbers, or tensors of one number; those on a device are waited for once."""
    plain = [int(each) for each in counts if isinstance(each, int | float)]
    tensors = [each for each in counts if isinstance(each, torch.Tensor) and each.numel() == 1]
    tensors = [each.detach() for each in tensors if not each.is_meta]
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for each in tensors:
        each = getattr(each, "_local_tensor", each)
        by_device.setdefault(each.device, []).append(each.reshape(()).to(torch.float64))
    plain += [int(torch.stack(each).max()) for each in by_device.values()]
    return max(plain, default=None)


def _values(group) -> dict[str, list[float]]:
    """By what they are called. Nothing if the group says nothing of any of NAMES: it is one of
    parameters that other ranks step."""
    known = [value for name in NAMES for value in _numbers(group.get(name))]
    if all(value != value for value in known):
        return {}
    found = {"options": known}
    others = {
        str(name): _numbers(value)
        for name, value in group.items()
        if name not in NAMES and name not in _NO_NUMBERS
    }
    names = sorted(name for name, read in others.items() if any(each == each for each in read))
    if names:
        found[f"options[{', '.join(names)}]"] = [each for name in names for each in others[name]]
    return found


def _numbers(value) -> list[float]:
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    read = [_number(each) for each in several[:_EACH]]
    return read + [float("nan")] * (_EACH - len(read))


def _number(value) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_meta:
        return float(value)
    return float(value) if isinstance(value, numbers.Real) else float("nan")


def _held(kind, values, dtype, alike) -> Holding:
    local = torch.tensor(values, dtype=dtype, device="cpu")
    shape = tuple(local.shape)
    return Holding(
        name=kind, kind=kind, dtype=local.dtype, shape=shape, local=local, runs=local_runs(shape),
        owner=local, groups=alike, codes=True, is_counter=True,
    )  # fmt: skip
