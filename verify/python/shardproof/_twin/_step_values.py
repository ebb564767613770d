"""What a rank of a subject that trains leaves for the plain twin (_step_by_step.py): the values
that it has at each observed stage, and what came between: batches, gradients, steps.

Nothing of this needs a line of the subject's: `case.loss` tells of its batches, and what follows is
listened to in torch. Only tensors of this rank are copied, and no collective is made.
"""

import dataclasses
import functools
import itertools
import pathlib
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._digests import _digest
from .._holdings import _layout, _optimizer, _stretch
from .._holdings._names import TRANSPARENT, without_wrappers
from .._holdings._steps import innermost, is_of_job
from .._observing import _hooks, _imports
from .._observing._evidence import root_cause
from ..case import Case
from . import _clips, _modes, _one_step, _passes, _scalers, _talks, _values
from ._forward_dtypes import ForwardDtypes
from ._own_hooks import OwnHooks
from ._step_events import (
    END,
    WHY_NOT,
    Again,
    Batch,
    Clip,
    Moment,
    OwnTerms,
    Part,
    Reduced,
    Scaled,
    Step,
    Stepper,
    Zeroed,
)
from ._targets import Targets

BYTES_MAX = 1 << 30  # of a rank, on disk
_NO_GRADIENT = "none"
_NARROW = {"bfloat16", "float16"}
_STAGES = {"ready", "restored", "stepped", "resumed"}


class StepValues:
    """Records for one rank, from `listen` on."""

    def __init__(self, folder: str, rank: int):
        self._folder = pathlib.Path(folder) / f"rank_{rank}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._since = []
        self._count = self._bytes = 0
        self._last = {}  # the model's parts when it was observed last
        self._passes = _passes.Passes()
        self._own_hooks = OwnHooks()
        self._trained = None  # to the model of the last loss
        self._with_gradients = None  # to the model, if it has some since the last backward
        self._targets = Targets()
        self._forward_dtypes = ForwardDtypes()
        self._batch = None  # of the loss that is being computed
        self._losses = []  # graph nodes of those since the last observation
        self._serials = weakref.WeakKeyDictionary()  # of optimizers, counted from 1
        self._count_serials = itertools.count(1)

    def listen(self):
        import torch.distributed.fsdp
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        Case.watched = self._watch_loss
        self._own_hooks.listen()
        register_optimizer_step_pre_hook(self._before_step)
        _hooks.listen(torch.autograd, "backward", before=self._begins, after=self._ended)
        _hooks.listen(torch.optim.Optimizer, "zero_grad", after=self._zeroed)
        _hooks.listen(torch.nn.Module, "zero_grad", after=self._zeroed)
        _hooks.listen(torch.utils.data.DistributedSampler, "__iter__", after=self._passes_again)
        for scaler in (torch.amp.GradScaler, ShardedGradScaler):  # which scales in a way of its own
            _hooks.listen(scaler, "scale", after=self._scaled)
        self._targets.listen()
        self._forward_dtypes.listen()
        clip = torch.nn.utils.clip_grad
        original = clip.clip_grad_norm_

        @functools.wraps(original)
        def clip_grad_norm_(parameters, *arguments, **named):
            is_one = isinstance(parameters, torch.Tensor)
            parameters = [parameters] if is_one else list(parameters)  # a generator is used up
            before = self._clipping(parameters)
            norm = original(parameters, *arguments, **named)
            self._clipped(norm, before, arguments, named)
            return norm

        _imports.replace(original, clip_grad_norm_)
        clip.clip_grad_norm_ = clip_grad_norm_
        fsdp1 = torch.distributed.fsdp.FullyShardedDataParallel
        _hooks.listen(
            fsdp1, "clip_grad_norm_",
            before=lambda arguments, named: self._clipping(arguments[0].parameters()),
            after=lambda norm, before, arguments, named: self._clipped(
                norm, before, arguments[1:], named
            ),
        )  # fmt: skip

    def reduced(self, op: str, dtype: str):
        """Of a collective: whether it adds up in fewer bits than parameters have, and whether a
        forward pass asks for it."""
        if self._batch is not None:
            self._batch.talks = self._batch.talks or _talks.who()
        if "reduce" in op and dtype in _NARROW:
            self._since.append(Reduced(getattr(torch, dtype)))

    # ---- What is listened to

    def _watch_loss(self, case, model, step):
        self._notice_given_up(model)
        fields = {each.name: getattr(case, each.name) for each in dataclasses.fields(case)}
        batch = Batch(
            fields, step, torch.default_generator.get_state(), model.training, _autocast()
        )
        batch.modes = _modes.unlike_the_model(model)
        self._targets.begin()
        self._forward_dtypes.begin()
        self._batch = batch
        try:
            loss = case.plain_loss(model, step)
        finally:
            self._batch = None
            batch.dtypes = self._forward_dtypes.end(model)
        batch.loss, batch.rng_after = float(loss.detach()), torch.default_generator.get_state()
        batch.terms, batch.summed = self._targets.counts(batch.loss)
        if loss.requires_grad:
            batch.weight = 0.0

            def begun(grad):
                if not batch.weight:
                    self._goes_back(batch)
                batch.weight += float(grad)

            loss.register_hook(begun)
            self._losses.append(loss.grad_fn)
        self._since.append(batch)
        return loss

    def _goes_back(self, batch):
        """Its gradients come now: what a job zeroed after its forward pass was that of others. What
        stepped in between has met it."""
        places = [at for at, each in enumerate(self._since) if each is batch]
        if places and not any(isinstance(each, Step) for each in self._since[places[0] :]):
            self._since.append(self._since.pop(places[0]))

    def _begins(self, arguments, named):
        roots = arguments[0] if arguments else named["tensors"]
        roots = [roots] if isinstance(roots, torch.Tensor) else list(roots)
        # Within another backward, that of a part that is computed anew begins.
        if torch._C._current_graph_task_id() == -1 and _has_own_terms(roots, self._losses):
            self._since.append(OwnTerms())

    def _ended(self, result, given, arguments, named):
        """Of a backward."""
        model = self._trained and self._trained()
        has_some = model is not None and _has_gradients(model)
        self._with_gradients = self._trained if has_some else None

    def _notice_given_up(self, model):
        """A job may set gradients to None by hand, in place of zero_grad."""
        is_same = self._with_gradients is not None and self._with_gradients() is model
        if is_same and not _has_gradients(model):
            self._zeroed(None, None, [None], {})
        self._trained = weakref.ref(model)

    def _zeroed(self, result, given, arguments, named):
        zeroed = Zeroed(id(arguments[0]))
        if not self._since or self._since[-1] != zeroed:
            self._since.append(zeroed)

    def _scaled(self, result, given, arguments, named):
        state = arguments[0].state_dict()
        numbers = {key: each for key, each in state.items() if isinstance(each, int | float)}
        self._since.append(Scaled(float(numbers.get("scale", 1.0)), numbers))

    def _passes_again(self, order, given, arguments, named):
        sampler = arguments[0]
        if self._passes.begun(sampler, order):
            self._since.append(Again(type(sampler).__name__, sampler.epoch))

    def _clipping(self, parameters) -> dict:
        """What is to be clipped, by its id, as it is before that."""
        return {id(each): _summary(_local(each.grad)) for each in parameters}

    def _clipped(self, norm, before, arguments, named):
        norm_max = float(arguments[0] if arguments else named["max_norm"])
        norm_type = float(arguments[1] if len(arguments) > 1 else named.get("norm_type", 2.0))
        known = type(norm) is torch.Tensor or isinstance(norm, int | float)
        part = None if known else _clips.part_of_norm(norm, norm_type)
        norm = float(norm) if known else None
        clipped = [key for key, said in before.items() if said != _NO_GRADIENT]
        self._since.append(Clip(norm, norm_max, norm_type, clipped, before, part))

    def _before_step(self, optimizer, arguments, named):
        if innermost(optimizer) is not optimizer or not is_of_job():
            return None
        self._passes.stepped()
        closure = arguments[1] if len(arguments) > 1 else named.get("closure")
        is_of_torch = type(optimizer).__module__.startswith("torch.optim.")
        is_once = is_of_torch and not isinstance(optimizer, torch.optim.LBFGS)
        if closure is None or not is_once:
            self._steps(optimizer, evaluates=closure is not None)
            return None

        def evaluated():
            with torch.enable_grad():
                loss = closure()
            self._steps(optimizer)
            return loss

        return arguments[:1], {**named, "closure": evaluated}

    def _steps(self, optimizer, evaluates=False):
        if (divisor := _scalers.divisor_of(optimizer)) is None:
            return
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        grads = {id(each): (each, _local(each.grad, divisor)) for each in parameters}
        options = [_options(group) for group in optimizer.param_groups]
        own = {key: value for key, value in vars(optimizer).items() if _is_own(key, value)}
        altered_by = self._own_hooks.on(parameters)
        step = Step(id(optimizer), options, grads, own, evaluates, altered_by)
        step.rows = {id(each): each.grad.coalesce().indices().clone() for each in parameters
                     if each.grad is not None and each.grad.layout == torch.sparse_coo}  # fmt: skip
        self._since.append(step)

    # ---- What is written

    def gradients(self, read, optimizer) -> dict[str, str]:
        """Of each parameter of the last step: the gradient that it was stepped with, in words."""
        last = next((each for each in reversed(self._since) if isinstance(each, Step)), None)
        if last is None:
            return {}
        clips = [each.before for each in self._since if isinstance(each, Clip)]
        found = {}
        owners = _owners(read, optimizer)
        for key, (_, grad) in last.grads.items():
            before = next((of[key] for of in clips if key in of), None)
            said = _summary(grad) + (f"; before clipping {before}" if before else "")
            for name, *_ in owners.get(key, [])[:1]:
                found[f"{name}.gradient"] = said
        return found

    def averaged(self, stage, step, averages):
        """Averages that were observed by themselves: of the weights that were observed last."""
        found = _averages(averages, self._last)
        self._write(Moment(stage, step, {}, {}, {}, [], [], found))

    def ended(self):
        """The subject has come to its end: steps that no observation shows are left, too."""
        steps = [Step(-1, [], {}, {}) for each in self._since if isinstance(each, Step)]
        if steps and self._count > 0:
            self._write(Moment(END, 0, {}, {}, {}, [], steps))

    def observed(self, stage, step, read, optimizer, rank, averages=None):
        """What cannot be kept is told to the twin; it ends no job."""
        if stage not in _STAGES or self._count < 0:
            return
        try:
            self._observe(stage, step, read, optimizer, rank, averages)
        except Exception as error:
            self._give_up(f"the values of its steps cannot be kept: {root_cause(error)}")

    def _give_up(self, why):
        self._count = -1
        (self._folder / WHY_NOT).write_text(why)

    def _observe(self, stage, step, read, optimizer, rank, averages):
        unread = next((held for held in read.tensors if held.unreadable), None)
        if unread is not None:
            return self._give_up(f"{unread.name} cannot be read: {unread.unreadable}")
        owners = _owners(read, optimizer)
        steppers = _optimizer.steppers_in(optimizer)
        numbers = {id(each): number for number, each in enumerate(steppers)}
        moment = Moment(
            stage, step,
            {held.name: _part(held) for held in read.tensors if held.local is not None},
            _state(read, optimizer, rank), _copies(read, optimizer),
            [
                Stepper(type(each), _groups(each, owners), self._serial_of(each))
                for each in steppers
            ],
            [_by_name(each, owners, numbers, read) for each in self._since],
        )  # fmt: skip
        self._since, self._losses, self._last = [], [], moment.model
        if stage == "restored":
            self._passes = _passes.Passes()
        moment.averages = _averages(averages, moment.model)
        self._write(moment)

    def _serial_of(self, optimizer):
        if optimizer not in self._serials:
            self._serials[optimizer] = next(self._count_serials)
        return self._serials[optimizer]

    def _write(self, moment):
        if self._count < 0:
            return
        parts = [*moment.model.values(), *moment.averages.values()]
        self._bytes += sum(part.local.nbytes for part in parts) * 4
        if self._bytes > BYTES_MAX:
            self._give_up("the values of its steps take more than 1 GiB a rank")
            return
        torch.save(moment, self._folder / f"{self._count:06}.pt")
        self._count += 1


def _has_gradients(model) -> bool:
    return any(parameter.grad is not None for parameter in model.parameters())


def _has_own_terms(roots, losses) -> bool:
    """Whether a gradient comes to a leaf from roots by another way than through one of the losses,
    which are nodes of the graph."""
    seen = set(losses)
    nodes = [root.grad_fn for root in roots]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            return True
        nodes += [each for each, _ in node.next_functions]
    return False


def _summary(grad) -> str:
    """A rank's part of a gradient, in words."""
    if grad is None:
        return _NO_GRADIENT
    digest = _digest.digest_runs(grad, _layout.local_runs(grad.shape)).hex()
    return f"norm {float(torch.linalg.vector_norm(grad.double())):.9g}, digest {digest}"


def _autocast():
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def _options(group) -> dict:
    """A rate that is a tensor is changed in place."""
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key not in ("params", "param_names")
    }


def _is_own(key, value) -> bool:
    return not key.startswith("_") and isinstance(value, bool | int | float | str | tuple)


def _local(grad, divisor=1.0):
    """A copy of this rank's part, flat, divided."""
    if grad is None:
        return None
    if hasattr(grad, "to_local"):
        grad = grad.to_local()
    if grad.layout != torch.strided:
        grad = grad.to_dense()
    grad = _values.as_real(grad)
    return (grad.clone() if divisor == 1 else grad / divisor).detach().reshape(-1)


def _part(held) -> Part:
    local, shape, runs = _local(held.local), tuple(held.shape), held.runs
    if held.dtype.is_complex:
        shape, runs = (*shape, 2), [_layout.of_pairs(each) for each in runs]
    return Part(
        local.dtype, shape, runs, local, held.kind, held.requires_grad, held.dtype.is_complex
    )


def _owners(read, optimizer) -> dict:
    """Of each object that is stepped, by its id: [(name, offset, length)], None for all of it."""
    found = {}
    for key, parts in read.flat.parts.items():
        found[key] = [(part.own.name, part.offset, part.length) for part in parts]
    for part, held, piece in _optimizer.flat_pieces(read, optimizer):
        found.setdefault(id(part), []).append((held.name, piece.at, piece.length))
    owned = _optimizer.parameters_by_owner(read.tensors)
    if optimizer is not None:
        owned = {**_optimizer.copied_parameters(read, optimizer), **owned}
    for key, several in owned.items():  # which a flat parameter owns in parts is known
        found.setdefault(key, [(several[0].name, 0, None)])
    return found


def _groups(optimizer, owners) -> list:
    return [
        (_options(group), [name for p in group["params"] for name, *_ in owners.get(id(p), [])])
        for group in getattr(optimizer, "param_groups", [])
    ]


def _state(read, optimizer, rank) -> dict:
    """Of parameters of the model: by name and key a Part, or a value that is no tensor."""
    found = {}
    if optimizer is None:
        return found
    for held in _optimizer.optimizer_tensors(read, optimizer, rank):
        name, _, key = held.name.rpartition(".")
        if held.local is not None and key != "main_param":
            found.setdefault(name, {})[key] = _part(held)
    for owned in _optimizer.optimizer_state(read.tensors, optimizer, read.flat, read.order):
        for key, value in _one_step.flat(owned.state):
            if value is None or isinstance(value, bool | int | float | str):
                found.setdefault(owned.name, {})[key] = value
    return found


def _averages(averages, model) -> dict:
    """By name: what this rank has of each average, which lies as the weight does. averages: a
    module, a mapping of names, or a list in the order of the model's parameters."""
    if averages is None:
        return {}
    if isinstance(averages, torch.nn.Module):
        averages = dict(averages.named_parameters(remove_duplicate=False))
    if not hasattr(averages, "items"):
        trained = [name for name, part in model.items() if part.kind == "parameter"]
        averages = dict(zip(trained, averages, strict=False))
    found = {}
    for key, tensor in averages.items():
        name = without_wrappers(key, TRANSPARENT | {"module"})
        own = model.get(name)
        local = _local(tensor) if isinstance(tensor, torch.Tensor) else None
        if own is not None and local is not None and local.numel() == own.local.numel():
            found[name] = Part(local.dtype, own.shape, own.runs, local)
    return found


def _copies(read, optimizer) -> dict:
    """By name: the F32 copy that is stepped in place of the model's parameter, which it lies as, or
    a stretch of it."""
    if optimizer is None:
        return {}
    copied = _optimizer.copied_parameters(read, optimizer)
    found = {}
    for part, held, piece in _optimizer.flat_pieces(read, optimizer):
        runs = _stretch.within(held.runs, piece.stretch.begin, piece.stretch.end)
        local = _local(part)[piece.at : piece.at + piece.length].clone()
        found[held.name] = Part(part.dtype, tuple(held.shape), runs, local)
    for _, parameters in _optimizer.groups_in(optimizer):
        for parameter in parameters:
            for held in copied.get(id(parameter), [])[:1]:
                local = _local(parameter)
                found[held.name] = Part(parameter.dtype, tuple(held.shape), held.runs, local)
    return found


def _by_name(event, owners, numbers, read):
    """With names in place of objects. Gradients that frozen parameters were left with are none."""
    if isinstance(event, Clip):
        named = [name for key in event.names for name, *_ in owners.get(key, [])]
        return dataclasses.replace(event, names=named, before={})
    if isinstance(event, Zeroed):
        return Zeroed(numbers.get(event.number, -1))
    if not isinstance(event, Step):
        return event
    grads, own = {}, {id(held.owner) for held in read.tensors}
    for key, (parameter, grad) in event.grads.items():
        if key in own and not parameter.requires_grad:
            continue
        for name, offset, length in owners.get(key, []):
            whole = grad is None or length is None
            grads[name] = grad if whole else grad[offset : offset + length].clone()
    rows = {owners[key][0][0]: each for key, each in event.rows.items() if owners.get(key)}
    number = numbers.get(event.number, -1)
    return dataclasses.replace(event, grads=grads, number=number, rows=rows)
