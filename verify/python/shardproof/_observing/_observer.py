"""`observe`: turns what a subject has in hand into evidence."""

import operator
import weakref

import torch

from .. import _dtypes
from .._digests import _called, _digest
from .._holdings import _layout, _model, _names, _optimizer, _options
from .._holdings._groups import Statement, alone, axis_names
from .._holdings._holding import alias_groups, bytes_of
from .._holdings._seen import Identities
from .._holdings._statistics import BeforeSteps
from .._holdings._steps import Steps
from .._judging import _finding
from .._memory import _pages
from . import _junk, _random
from ._evidence import Place, Writer
from ._moved import Moved

_SAID = {"group", "groups", "mesh", "layout", "finite"}
_STEPPED = ("stepped", "resumed")
_AFTER_STEPS = {"stepped", "saved", "resumed"}
_INLINE_BYTES_MAX = 4096
_BLOCKS_MAX = 1024
_BLOCK_BYTES = 4096


class Observer:
    """Given to a subject as `observe`.

    observe(stage, model=None, optimizer=None, state_dict=None, content=None, step=0, missing=None,
            unexpected=None, names=None, also=(), averages=None, group=None, groups=None, mesh=None,
            layout=None, finite=True)

    stage: "built", "loaded", "sharded", "materialized", "ready", "stepped", "saved", "restored" or
    "resumed". step: how many optimizer steps were taken; "stepped" and "resumed" count from 1.
    optimizer: its state, options, and whether it holds the model's parameters; needs model=.
    state_dict: tensors by FQN, as the framework gives them for saving.
    content: what the values mean: "none", "undefined" or "defined" for all tensors, or a function
    from FQN to one of these. Left out: "defined", and "none" for what is on meta. What a subject
    calls undefined at "loaded" and "materialized" is overwritten with junk as soon as it is on
    record.
    averages: of the weights: a module, a mapping of names, or a list in the order of the model's
    parameters; each lies on the ranks as its weight does. At the stage "ema", the model is that.
    missing, unexpected: the keys that the subject found missing and unexpected, if it knows both.
    names: {name: the checkpoint's name} or a function from one to the other, where the framework
    has names of its own. also: patterns of tensors that the framework adds, such as ["*.scale"],
    which no checkpoint has: ranks are compared in them, and nothing else.
    group, groups, mesh, layout: which ranks hold plain tensors together, as shardproof.check takes
    them. mesh: the job's own, unless said. finite: {pattern: False} of tensors in which NaN and Inf
    are not to be counted. What is said of these, of names and of also holds from then on.
    """

    def __init__(
        self, writer: Writer, place: Place, mode: str, captures: list[dict], *, listens=True,
        is_of_subject=False,
    ):  # fmt: skip
        self._writer = writer
        self._place = place
        self._said = {}
        self._finite = True
        self._names, self._also = None, ()
        self._keys = {}  # those that the subject found missing, and unexpected, as far as it said
        self._mode = mode
        self._captures = captures
        self._on_stage = None
        self._on_observed = None
        self._identities = Identities()
        self._attributes: dict[str, dict[str, str]] = {}  # of the model's tensors, by name
        self._memory = None
        self._before_steps = BeforeSteps()
        self._optimizers: list[weakref.ref] = []
        self.stage = "start"
        self.own_bytes = 0
        self.steps = Steps()
        self.moved = Moved(writer, self.steps)
        self._listens = listens  # to the steps of all optimizers; else it is told of them
        # The model of a subject is there to be verified: what is undefined in it is overwritten.
        self._overwrites = is_of_subject and mode == "values"
        self._is_of_subject = is_of_subject
        self.waits_for_reader = False
        self.step_values = None  # a StepValues, where a twin is to take the same steps

    def on_stage(self, told):
        """Calls told(stage) whenever a stage is about to be observed."""
        self._on_stage = told

    def watch_memory(self, memory):
        """memory: a StageMemory, which records what the process holds at every stage."""
        self._memory = memory

    def on_observed(self, told):
        """Calls told(stage, step) whenever a stage was observed, all of it being on record."""
        self._on_observed = told

    @_called.by_job
    def __call__(
        self, stage, model=None, optimizer=None, state_dict=None, content=None, step=0,
        missing=None, unexpected=None, names=None, also=None, averages=None, **said,
    ):  # fmt: skip
        if not isinstance(stage, str) or not stage:
            raise ValueError(f"observe: the stage is a name, not {stage!r}")
        if not hasattr(step, "__index__"):
            raise ValueError(f"observe({stage!r}): step is a whole number, not {step!r}")
        step = operator.index(step)  # it may be one of numpy's
        if all(given is None for given in (model, state_dict, missing, unexpected, averages)):
            raise ValueError(f"observe({stage!r}): expected model=, found nothing to observe")
        if optimizer is not None and model is None:
            raise ValueError(f"observe({stage!r}): expected model= with optimizer=, found none")
        if stage in ("stepped", "resumed") and step < 1:
            raise ValueError(f"observe({stage!r}): expected step=, counted from 1, found none")
        self.stage = stage
        if self._on_stage:
            self._on_stage(stage)
        if self._memory:
            self._memory.take()
        if missing is not None or unexpected is not None:
            self._keys |= {k: list(v) for k, v in (("missing", missing), ("unexpected", unexpected))
                           if v is not None}  # fmt: skip
            if len(self._keys) == 2:  # of what is never said nothing is known, not that it is none
                self._writer.keys(**self._keys)
        statement = self._state_what_is_said(model, said)
        read = _model.Model([], None) if model is None else _model.read(model, statement)
        self._names, self._also = names or self._names, also or self._also
        renaming = _names.Renaming(self._names, self._also)
        tensors = read.tensors = renaming.apply(read.tensors)
        _optimizer.look_at_copies(read, optimizer, statement.rank)
        if model is not None:
            if self._memory:
                if optimizer is not None:
                    self.note_optimizers(optimizer)
                held = [known for each in self._optimizers if (known := each()) is not None]
                self._memory.record(stage, step, tensors, held)
            self.own_bytes = 0
            self._identities.look_at(tensors)
            self._writer.begin_stage(stage, step)
            self._observe_tensors(stage, step, tensors, content)
            if self._overwrites and stage in _junk.STAGES:
                self._overwrite(tensors, content)
            if self._mode == "values":
                self._writer.rng(_random.digest(), _random.was_asked_for())
                if self._listens:
                    self._tell_unshown(stage, read, optimizer)
            self._writer.end_stage()
        if optimizer is not None:
            self._writer.begin_stage(stage, step, "optimizer")
            state = _optimizer.optimizer_tensors(read, optimizer, statement.rank)
            self._observe_tensors(stage, step, state, None)
            self._observe_optimizer(read, optimizer, statement)
            if self._mode == "values":
                self._observe_steps(stage, step, read, state, optimizer)
            self._writer.end_stage()
        elif model is not None:
            self.moved.looked_at(stage, step, [], None)
        self._observe_values(stage, step, read, optimizer, averages, statement.rank)
        if state_dict is not None:
            self._writer.begin_stage(stage, step, "state_dict")
            tensors = renaming.apply(_model.state_dict_tensors(state_dict, statement))
            self._observe_tensors(stage, step, tensors, content)
            self._writer.end_stage()
        if self._memory:
            self._memory.go_on()
        if self._on_observed:
            self._on_observed(stage, step)

    def _tell_unshown(self, stage, read, optimizer):
        """Optimizers that stepped and are not observed. Of a script, which may have other models
        too, those that hold a parameter of this one."""
        self.steps.listen()
        others = self.steps.unshown(_optimizer.shown_by(optimizer))
        if others and optimizer is not None:  # one that hands on in a way of its own
            every = {id(p) for _, held in _optimizer.groups_in(optimizer) for p in held}
            others = {each: n for each, n in others.items() if _optimizer.holds_other(each, every)}
        if not self._is_of_subject:
            own = _optimizer.parameters_by_owner(read.tensors)
            others = {each: n for each, n in others.items() if _optimizer.holds_any(each, own)}
        if stage in _STEPPED and others:
            self._writer.steps(
                taken=sum(others.values()), since="", held=0, still=[],
                unsure=", ".join(sorted({type(each).__name__ for each in others})),
            )  # fmt: skip

    def _observe_values(self, stage, step, read, optimizer, averages, rank):
        """For the plain twin. At "ema" the model is one of averages."""
        if self.step_values is None:
            return
        if stage == "ema" or not read.tensors:
            given = {held.name: held.local for held in read.tensors if held.local is not None}
            if averages is not None or given:
                self.step_values.averaged(stage, step, given or averages)
            return
        self.step_values.observed(stage, step, read, optimizer, rank, averages)

    def note_optimizers(self, optimizer):
        """They hold memory for the model, whether or not they are observed at a stage."""
        self._optimizers = [weakref.ref(each) for each in _optimizer.optimizers_in(optimizer)]

    def _state_what_is_said(self, model, said) -> Statement:
        """Of a list of chunks of a model nothing is taken for granted."""
        unknown = said.keys() - _SAID
        if unknown:
            raise TypeError(f"observe: unknown argument {min(unknown)!r}")
        self._finite = said.pop("finite", self._finite)
        self._said.update((name, value) for name, value in said.items() if value is not None)
        return Statement(
            **{"mesh": self._place.mesh, **self._said},
            claims=not isinstance(model, list | tuple),
            rank=self._place.rank,
            world_size=self._place.world_size,
        )

    def _observe_tensors(self, stage, step, tensors, content):
        aliases = alias_groups(tensors)
        counted = set()
        for held in tensors:
            state = self._state(held, stage, content)
            self._writer.state(held.name, self._descriptor(held, aliases), state)
            if held.local is not None and not held.is_meta:
                storage = held.local.untyped_storage()
                if storage.data_ptr() not in counted:
                    counted.add(storage.data_ptr())
                    self.own_bytes += held.local.nbytes
                if self._mode == "memory" and held.local.device.type == "cpu":
                    committed = _pages.committed_bytes(held.local.data_ptr(), held.local.nbytes)
                    self._writer.pages(stage, step, held.name, held.local.nbytes, committed)

    def _overwrite(self, tensors, content):
        """What the subject itself calls undefined; not what it says nothing of."""
        said = {held.name: content(held.name) if callable(content) else content for held in tensors}
        undefined = [held for held in tensors if said[held.name] == "undefined"]
        if undefined:
            _junk.overwrite(undefined, [h for h in tensors if said[h.name] != "undefined"])

    def _observe_optimizer(self, read, optimizer, said):
        """All but the tensors of its state: groups, and what in them is not the model's."""
        groups, strangers = self._groups_of(read, optimizer)
        values = self._values_of(read, optimizer, said)
        if self.step_values is not None and self.stage in _STEPPED:
            values |= self.step_values.gradients(read, optimizer)
        self._writer.optimizer(groups, strangers, values)

    def _groups_of(self, read, optimizer) -> tuple[list, list]:
        owners = _optimizer.parameters_by_owner(read.tensors)
        owners = {**_optimizer.copied_parameters(read, optimizer), **owners}
        groups, strangers = [], []
        for number, (of, group, held_by_it) in enumerate(_optimizer.groups_by_optimizer(optimizer)):
            options = self._options_of(group)
            if of and options:  # those that only other ranks step have none
                options["<optimizer>"] = of
            names = []
            for index, parameter in enumerate(held_by_it):
                names += [held.name for held in owners.get(id(parameter), [])]
                if id(parameter) not in owners:
                    was = self._identities.name_of(parameter)
                    strangers.append({"group": number, "index": index, "was": was,
                                      "shape": list(parameter.shape)})  # fmt: skip
            groups.append({"options": options, "parameters": names})
        return groups, strangers

    def _options_of(self, group) -> dict[str, str]:
        return {str(key): _text(value) for key, value in group.items() if key != "params"}

    def _values_of(self, read, optimizer, said) -> dict[str, str]:
        values = {
            f"{owned.name}.{key}": _text(value)
            for owned in _optimizer.optimizer_state(read.tensors, optimizer)
            for key, value in owned.state.items()
            if not isinstance(value, torch.Tensor)
        }
        for name, (taken, ranks) in _options.steps_of(read, optimizer, said).items():
            if ranks is not None:
                values[f"{name} on {_finding.stretches_text(ranks)}.steps"] = str(taken)
        return values

    def _observe_steps(self, stage, step, read, state, optimizer):
        """What steps left as it was since the last observation, where they should not have."""
        if self._listens:
            self.steps.listen()
        if found := self.moved.record(stage, step, read, state, optimizer):
            self._writer.steps(**found)
        self.moved.looked_at(stage, step, state, optimizer)

    def _descriptor(self, held, aliases) -> dict:
        local = held.local
        out = {
            "name": held.name,
            "kind": held.kind,
            "dtype": _dtypes.NAMES.get(held.dtype, str(held.dtype)),
            "shape": list(held.shape),
            "persistent": held.persistent,
            "requires_grad": held.requires_grad,
            "placements": [_placement_record(placement) for placement in held.placements],
            "groups": self._groups_record(held),
            "owned": [_run_record(run) for run in held.runs],
        }
        if held.home is not None:
            out["identity"] = self._identities.number_of(held)
        if held.placements and (mesh := self._own_mesh(held)):
            out["mesh"] = self._writer.mesh(mesh, held.coordinates)
        if local is not None:
            out["local_shape"] = list(local.shape)
            out["local_stride"] = list(local.stride())
            if local.numel():
                out["alias_group"] = aliases[held.name]
        if held.also:
            out["also"] = True
        if held.computed:
            out["in_turn"] = True
        if varies := self._why_it_varies(held):
            out["varies"] = varies
        if attributes := self._attributes_of(held):
            out["attributes"] = attributes
        return out

    def _attributes_of(self, held) -> dict[str, str]:
        """Of the model's own as they were before steps, which may note figures on parameters: a
        norm, say."""
        if held.home is None:
            return held.attributes
        if self.stage not in _AFTER_STEPS:
            self._attributes[held.name] = held.attributes
        return self._attributes.setdefault(held.name, held.attributes)

    def _own_mesh(self, held) -> list[dict]:
        """The axes of the tensor's mesh; none if it is the job's."""
        place = self._place
        names = held.mesh_names or [axis["name"] for axis in place.axes]
        if len(names) != len(held.mesh_shape):
            names = axis_names(None, len(held.mesh_shape))
        axes = [{"name": n, "size": size} for n, size in zip(names, held.mesh_shape, strict=True)]
        is_of_job = axes == place.axes and list(held.coordinates) == place.coordinates
        return [] if is_of_job else axes

    def _why_it_varies(self, held) -> str:
        if held.drifts:
            return held.drifts
        if not self._is_of_subject:
            return "rewritten" if held.accumulates else ""
        if self.stage in _AFTER_STEPS:
            is_other = held.kind == "buffer" and self._before_steps.is_other_since(held)
            return "rewritten" if held.accumulates or is_other else ""
        self._before_steps.look_at(held)  # nothing but loading has written it
        return ""

    def _groups_record(self, held) -> int:
        groups = held.groups or alone(self._place.rank)
        record = {"whole": groups.whole, "alike": groups.alike, "members": groups.members}
        if held.groups is None:
            record["stated"] = False
        if held.unique:
            record["named_once"] = True
        return self._writer.groups(**record)

    def _state(self, held, stage, content) -> dict:
        meaning = content(held.name) if callable(content) else content
        if held.is_meta:
            meaning = "none"
        elif held.local is None or (held.partial and held.kind != "buffer"):
            meaning = "undefined"
        elif meaning is None:
            awaits = self.waits_for_reader and stage == "loaded" and held.persistent
            meaning = "undefined" if awaits else "defined"
        if meaning not in ("none", "undefined", "defined"):
            raise ValueError(
                f"observe({stage!r}): content of {held.name} is {meaning!r}; "
                'expected "none", "undefined" or "defined"'
            )
        state = {"device": held.device, "is_meta": held.is_meta, "content": meaning}
        awaits = "values that await a reduction over ranks"  # as a buffer's may, a count's say
        why = held.unreadable or held.misfit or (awaits if held.partial else "")
        if why and not (held.partial and held.kind != "buffer"):
            state["unreadable"] = why
        if held.is_meta or held.local is None:
            return state
        owned = _layout.element_count(held.runs)
        if owned == held.local.numel():
            size = held.local.element_size()
            state["coverage"] = _digest.hex_of(_digest.coverage(held.runs, size))
        if self._mode == "memory" or meaning != "defined" or owned != held.local.numel():
            state.setdefault("coverage", "0" * 32)
            state["digest"] = "0" * 32
            return state
        state.update(self._value(held))
        return state

    def _value(self, held) -> dict:
        size = held.local.element_size()
        total = size
        for length in held.shape:
            total *= length
        side = _BLOCK_BYTES
        while -(-total // side) > _BLOCKS_MAX:
            side *= 2
        if not held.runs:
            return {"digest": "0" * 32, "nan": 0, "inf": 0}
        first = min(run.start for run in held.runs) * size // side
        last = max(run.start + (run.count - 1) * run.stride + run.length for run in held.runs)
        count = (last * size - 1) // side - first + 1
        summary = _digest.digest_runs(held.local, held.runs, side, first, count)
        out = {"digest": summary.hex(), "nan": 0, "inf": 0}
        if held.is_of_numbers(self._finite):
            inf = 0 if summary.inf_count and held.may_be_infinite() else summary.inf_count
            out.update(nan=summary.nan_count, inf=inf)
        if out["nan"] + out["inf"]:
            out["first_nonfinite"] = _digest.first_non_finite(held.local, held.runs)
        out["block_bytes"] = side
        out["first_block"] = first
        out["blocks"] = _digest.hex_of_blocks(summary.blocks)
        stretches = []
        if held.local.nbytes <= _INLINE_BYTES_MAX:
            stretches.append((0, total))
        else:
            stretches += [
                (capture["byte_start"], capture["byte_start"] + capture["byte_length"])
                for capture in self._captures
                if capture["tensor"] == held.name
            ]
        ranges = [part for low, high in stretches for part in bytes_of(held, low, high)]
        if ranges:
            out["bytes"] = [{"start": start, "hex": data.hex()} for start, data in ranges]
        return out


def _text(value) -> str:
    """A value as Python shows it; of a tensor, its elements. A list is a tuple: frameworks make one
    of the other."""
    if isinstance(value, torch.Tensor):
        return repr(value.tolist()) if value.numel() <= 16 else f"tensor of {list(value.shape)}"
    return repr(_as_tuples(value))


def _as_tuples(value):
    if isinstance(value, list | tuple):
        return tuple(_as_tuples(each) for each in value)
    return value


def _run_record(run) -> dict:
    out = {"start": run.start, "length": run.length}
    if run.count > 1:
        out.update(count=run.count, stride=run.stride)
    return out


def _placement_record(placement) -> dict:
    out = {"kind": placement.kind}
    if placement.kind in ("shard", "strided_shard", "uneven_shard"):
        out["dim"] = placement.dim
    if placement.kind == "strided_shard":
        out["split_factor"] = placement.split_factor
    return out
