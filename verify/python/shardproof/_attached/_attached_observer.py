"""Observes a job that says nothing of itself: what its wrappers show is held against other ranks,
the rest is looked at alone."""

import dataclasses

from .._holdings import _optimizer, _replicas
from .._holdings._groups import Groups, Statement, is_expert
from .._holdings._model import chunks_of
from .._holdings._names import canonical_name
from .._holdings._seen import Seen
from .._observing._observer import Observer


class Shown(Statement):
    """What the job itself shows of plain tensors: the parameters of DDP and of DeepSpeed's engine
    are the same in its group, and Megatron-LM has groups for all.

    Nobody said anything of others, such as buffers, which each rank may change by its own data.
    """

    def __init__(self, model, rank, world_size):
        super().__init__(claims=False, rank=rank, world_size=world_size)
        self._wrapped: dict[str, tuple[int, ...]] = {}
        for chunk in chunks_of(model) if model is not None else []:
            for prefix, module in chunk.named_modules():
                if (ranks := _replicas.ranks_alike(module)) is not None:
                    self._take(chunk, prefix, module, ranks)

    def _take(self, chunk, prefix, wrapper, ranks):
        for name, parameter in _replicas.parameters_alike(wrapper):
            if is_expert(parameter):
                continue
            *inner, leaf = name.split(".")
            path = ".".join([*filter(None, [prefix]), *inner])
            self._wrapped[canonical_name(chunk, path, leaf)] = ranks

    def groups_of(self, name, default=None, tensor=None):
        ranks = self._wrapped.get(name)
        if ranks is None:
            return super().groups_of(name, None, tensor)
        return Groups((self.rank,), ranks)


class AttachedObserver(Observer):
    """An Observer that claims nothing that the job does not.

    former: of each parameter that a wrapper replaced, by id, what was seen of it.
    """

    def __init__(self, writer, place):
        super().__init__(writer, place, "values", [], listens=False)
        self.former: dict[int, Seen] = {}
        self.digests: dict[str, str] = {}  # of what was observed last
        self._options: dict[int, dict[str, str]] = {}  # of groups, by id: to be on record

    def _state_what_is_said(self, model, said):
        return self.said(model)

    def _descriptor(self, held, aliases):
        """Without what shares memory: nobody said which of the job's tensors are tied."""
        out = super()._descriptor(held, aliases)
        out.pop("alias_group", None)
        return out

    def _value(self, held):
        out = super()._value(held)
        if held.kind == "buffer" and out["inf"]:
            out["inf"] = 0  # masks of -inf are sound
            del out["first_nonfinite"]  # which may be one of these
        self.digests[held.name] = out["digest"]
        return out

    def _observe_optimizer(self, read, optimizer, said):
        """What a job's optimizers hold is its own affair, but for parameters that a wrapper has
        replaced: their steps change nothing."""
        own = _optimizer.parameters_by_owner(read.tensors)
        every = [p for _, parameters in _optimizer.groups_in(optimizer) for p in parameters]
        if any(self.was_replaced(p) and id(p) not in own for p in every):
            super()._observe_optimizer(read, optimizer, said)
            return
        groups, strangers = self._groups_of(read, optimizer)
        strangers = [{**each, "was": ""} for each in strangers]  # of a model that may be another's
        values = self._values_of(read, optimizer, said)
        self._writer.optimizer(groups, strangers, values, claims=False)

    def keep_options(self, optimizer):
        """A step has ended that is observed later, when a schedule may have changed them."""
        for group, _ in _optimizer.groups_in(optimizer):
            self._options[id(group)] = super()._options_of(group)

    def forget_options(self):
        self._options.clear()

    def _options_of(self, group):
        kept = self._options.get(id(group)) if self.stage == "stepped" else None
        return super()._options_of(group) if kept is None else dict(kept)

    def was_replaced(self, parameter) -> bool:
        known = self.former.get(id(parameter))
        return known is not None and known.is_of(parameter)

    def said(self, model):
        return Shown(model, self._place.rank, self._place.world_size)

    def record_state_dict(self, stage, step, parts):
        """parts: (what the model holds, what this rank has of it in a state dict)."""
        held = [dataclasses.replace(own, local=part, owner=part, home=None) for own, part in parts]
        self._record_state_dict(stage, step, held)

    def leave_state_dict(self, stage, step, held, why):
        """held: what the model holds that a state dict has, and that is not judged there."""
        left = [
            dataclasses.replace(each, local=None, owner=None, home=None, unreadable=why)
            for each in held
            if each.kind == "parameter"
        ]
        self._record_state_dict(stage, step, left)

    def _record_state_dict(self, stage, step, held):
        self._writer.begin_stage(stage, step, "state_dict")
        self._observe_tensors(stage, step, held, None)
        self._writer.end_stage()
