"""The models and optimizers that an attached job was seen to make, and the moments at which they
are observed. Nothing here keeps one of them alive, and nothing waits for another rank."""

import collections
import contextlib
import warnings
import weakref

from torch import nn

from .._holdings import _fsdp2, _model
from .._holdings._groups import Statement
from .._holdings._names import canonical_name
from .._holdings._seen import Seen
from .._memory._stage import StageMemory
from . import _attached_observer, _saved
from ._unwrapped import Alive

_AT_THE_END = "the job had ended and may have restored its best values"
_STATES_MAX = 8  # how many earlier stages a save is held against
_SEARCHES_MAX = 16  # for models: each looks at all objects of Python


@contextlib.contextmanager
def _without_warnings():
    """Only where much is looked at: after it, Python repeats warnings that it has shown once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _BeforeForward:
    """A forward pre-hook on a model until it was observed. A copy or a pickle of the model does
    without: there it is a function of Python's own that changes nothing."""

    def __init__(self, told):
        self._told = told

    def __call__(self, module, args):
        self._told(module)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return getattr, ({}, "get")  # of (module, args) it returns args


class _Root:
    """An outermost module that was wrapped, prepared, loaded or found by its parameters."""

    def __init__(self, module, found=False):
        self._module = weakref.ref(module)
        self.kind = f"found {type(module).__qualname__}" if found else ""
        self._handle = None
        self.former = {}  # of parameters that wrapping replaced, by id: Seen
        self.model = None

    @property
    def module(self):
        return self._module()

    @property
    def is_observed(self) -> bool:
        return self.model is not None and self.model.is_ready

    def join(self, model):
        self.model = model
        model.roots.append(self)

    def leave(self):
        """\\returns the model that it was part of, if there was one."""
        model, self.model = self.model, None
        if model is not None:
            model.roots.remove(self)
        return model

    def watch(self, told):
        """Calls told(module) before the next forward, before a wrapper gathers anything for it. One
        that no wrapper made is looked at before its next step: it may have been compiled."""
        self.unwatch()
        if self.kind:
            return
        hook = _BeforeForward(told)
        self._handle = self.module.register_forward_pre_hook(hook, prepend=True)

    def unwatch(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class _FollowedModel:
    """Roots that are trained together, such as the chunks of a stage of a pipeline."""

    def __init__(self):
        self.roots: list[_Root] = []
        self.observer = None
        self.is_ready = False
        self.is_loaded = False  # since it was last observed
        self.lead = None  # the optimizer whose steps are counted, weakly
        self.steps = 0
        # Ids of what was stepped since the last step began. One step may be of several optimizers,
        # or of one that is given a group of parameters at a time, as by DeepSpeed.
        self.stepped: set[int] = set()
        self.is_counted = False  # the step that is being taken
        self.awaits = False  # what the last step made of it, which others have still to write
        self.observed_step = 0
        self.states = collections.deque(maxlen=_STATES_MAX)  # (stage, {name: digest})

    def modules(self) -> list:
        """Those that are there still, if all are: of half a model nothing is said."""
        modules = [root.module for root in self.roots]
        return [] if any(module is None for module in modules) else modules

    def chunks(self) -> list:
        """The same, as one where two have a parameter of one name: nobody said that it is one."""
        modules, names = self.modules(), set()
        for module in modules if len(modules) > 1 else ():
            own = {
                canonical_name(module, prefix, name)
                for prefix, inner in module.named_modules()
                for name, parameter in inner._parameters.items()
                if parameter is not None
            }
            if names & own:
                return [nn.ModuleList(modules)]
            names |= own
        return modules


class Followed:
    """stages, every: as the options have them. writer_for: from the kind of a new model, which is
    the same on all ranks, to this rank's place and the writer of the model's evidence. guard: makes
    a function one whose failure does not reach the job. watch: of this process's memory, or None.
    """

    def __init__(self, stages, every, writer_for, guard, watch=None):
        self._stages, self._every = stages, every
        self._watch = watch
        self._writer_for, self._told = writer_for, guard(self._before_forward)
        self._roots: list[_Root] = []
        self._optimizers = weakref.WeakKeyDictionary()  # to the ids of what each was made with
        self._owners = weakref.WeakKeyDictionary()  # to what has it step stretches, weakly
        self._stepping: list[int] = []  # ids of optimizers that step, the outermost first
        self._searches = 0
        self._models: list[_FollowedModel] = []
        self._of_optimizer = weakref.WeakKeyDictionary()  # to the models that it steps
        self.stage = "start"  # the last that was begun

    # ---- What the job makes

    def wrapping(self, module):
        """Before a wrapper may replace parameters. \\returns what to give to wrapped()."""
        return {id(each): Seen(each) for each in module.parameters()}

    def wrapped(self, module, former=None, found=False):
        """module: what a wrapper made, or loaded; or found: what nobody told of. It takes the place
        of what is within it."""
        within = {id(each) for each in module.modules()}
        kept, taken, known, model = [], dict(former or {}), None, None
        for root in self._roots:
            own = root.module
            if own is None:
                continue
            if own is module:
                known = root
            elif any(each is module for each in own.modules()):
                return  # it is part of a larger one, which is followed
            elif id(own) in within and not root.is_observed:
                root.unwatch()
                taken.update(root.former)
                model = root.leave() or model
                continue
            kept.append(root)
        if known is None:
            known = _Root(module, found)
            kept.append(known)
            if model is not None:
                known.join(model)
        known.former.update(taken)
        if not known.is_observed:
            known.watch(self._told)
        self._roots = kept
        self._of_optimizer.clear()

    def made(self, optimizer):
        self._optimizers[optimizer] = _held_by(optimizer)
        self._of_optimizer.clear()

    def loaded(self, module):
        """module: what a state was loaded into."""
        for root in self._roots:
            if root.module is not None and any(each is module for each in root.module.modules()):
                self._is_loaded(root)

    def read(self, state):
        """state: what was read into in place."""
        for root in self._roots:
            if root.module is not None and _saved.is_in_place(state, root.module):
                self._is_loaded(root)

    def _is_loaded(self, root):
        self._model_of(root).is_loaded = True
        root.watch(self._told)

    # ---- When it is observed

    def _before_forward(self, module):
        for root in self._roots:
            if root.module is module:
                root.unwatch()
                self._begin(self._model_of(root))

    def before_step(self, optimizer):
        if id(optimizer) in self._stepping:  # the step before did not come to its end
            del self._stepping[self._stepping.index(id(optimizer)) :]
        self._stepping.append(id(optimizer))
        held = _held_by(optimizer)
        for model in self._models_of(optimizer):
            if not held or held & model.stepped:  # another step begins
                model.stepped, model.is_counted = set(), False
                if model.awaits:
                    self._step(model)
            self._begin(model)

    def after_step(self, optimizer):
        """Of steps within one another it is the outermost that makes the model what it is."""
        is_outermost = self._stepping[:1] == [id(optimizer)]
        if id(optimizer) in self._stepping:
            del self._stepping[self._stepping.index(id(optimizer)) :]
        held = _held_by(optimizer)
        for model in self._models_of(optimizer):
            if is_outermost and (model.lead is None or model.lead() is None):
                model.lead = weakref.ref(optimizer)
            leads = is_outermost and model.lead() is optimizer and not model.is_counted
            model.is_counted |= leads
            model.stepped |= held
            model.steps += leads
            coming = model.steps + (not leads)
            is_due = coming == 1 or bool(self._every and coming % self._every == 0)
            if model.observer is not None:
                model.observer.steps.stepped(optimizer, with_grads=is_due)
            if leads and is_due:
                model.awaits = self._is_unfinished(model)
                if not model.awaits:
                    self._step(model)
                elif model.observer is not None:
                    model.observer.keep_options(self._optimizers_of(model))

    def _is_unfinished(self, model) -> bool:
        """Whether parts of a step come from elsewhere: what optimizers step is no parameter of the
        model and is copied to these, or other ranks step some of them."""
        own = {id(p): p for root in model.roots for p in _parameters_of(root.module)}
        optimizers = [each for each in self._optimizers if own.keys() & self._ids_of(each)]
        stepped = set().union(*map(_held_by, optimizers))
        return not stepped <= own.keys() or any(
            p.grad is not None for key, p in own.items() if key not in stepped
        )

    def saved(self, state, is_checkpoint=False):
        """state: what was given to be saved, whatever it is. is_checkpoint: whether that is said to
        be one: objects in it may stand for their state, which is not asked of them, since they may
        talk to other ranks."""
        if "saved" not in self._stages:
            return
        for model in self._live():
            if is_checkpoint or _saved.may_have(state, model.modules()):
                self._save(model, state, is_checkpoint)

    @_without_warnings()
    def _save(self, model, state, is_checkpoint):
        self._begin(model)
        held = _model.read(model.modules(), Statement(claims=False)).tensors
        found = _saved.state_of(state, held)
        if found is None and not is_checkpoint:
            return
        self._observe(model, "saved", model.steps, with_optimizer=is_checkpoint)
        now = model.states[-1]
        earlier = list(model.states)[:-1]
        parts = _saved.parts_in(found or {}, held)
        if _saved.is_known(parts, now, earlier):
            model.observer.record_state_dict("saved", model.steps, parts)
        elif why := _saved.why_not_judged(state, found, parts):
            left = [each for each, _ in parts] or held
            model.observer.leave_state_dict("saved", model.steps, left, why)

    def ending(self):
        """The last step is on record once no further one can come, and each model that was wrapped
        and is still there, though nothing was computed with it as a whole."""
        for root in list(self._roots):
            if not root.is_observed and _is_made(root.module):
                self._begin(self._model_of(root))
        for model in self._live():
            if model.is_loaded:
                self._begin(model)
            if model.steps > model.observed_step:
                if model.observer is not None:
                    model.observer.moved.unsure = _AT_THE_END
                self._step(model)

    def dismissed(self) -> list:
        """Observes nothing more. \\returns the optimizers of the job that are there."""
        for root in self._roots:
            root.unwatch()
        return list(self._optimizers)

    # ---- How

    def _live(self):
        return [model for model in self._models if model.is_ready and model.modules()]

    def _begin(self, model):
        """What is to be observed before anything is computed with the model."""
        if not model.modules():
            return
        if not model.is_ready:
            model.is_ready = True
            if "ready" in self._stages:
                self._observe(model, "ready")
        if model.is_loaded:
            model.is_loaded = model.awaits = False
            model.observed_step = model.steps  # what the last one gave is there no more
            if model.observer is not None:
                model.observer.moved.forget()
            if "restored" in self._stages:
                self._observe(model, "restored")

    def _step(self, model):
        model.awaits = False
        if model.modules():
            model.observed_step = model.steps
            self._observe(model, "stepped", model.steps)
            model.observer.forget_options()

    @_without_warnings()
    def _observe(self, model, stage, step=0, with_optimizer=True):
        self.stage = stage
        modules = model.chunks()
        if model.observer is None:
            place, writer = self._writer_for(model.roots[0].kind)
            model.observer = _attached_observer.AttachedObserver(writer, place)
            if self._watch is not None:
                model.observer.watch_memory(StageMemory(writer, self._watch))
        for root in model.roots:
            model.observer.former.update(root.former)
        model.observer.digests = {}
        optimizers = self._optimizers_of(model)
        model.observer.note_optimizers(optimizers)
        if not with_optimizer:
            optimizers = []
        model.observer(stage, model=modules, optimizer=optimizers or None, step=step)
        model.states.append((f"{stage}@{step}" if step else stage, model.observer.digests))

    def _optimizers_of(self, model) -> list:
        """In the order of their parameters in the model, so that all ranks have the same order."""
        place_of = {}
        for root in model.roots:
            for each in [*map(id, _parameters_of(root.module)), *_still_there(root.former)]:
                place_of.setdefault(each, len(place_of))
        found = []
        for optimizer in list(self._optimizers):
            places = [place_of[each] for each in self._ids_of(optimizer) if each in place_of]
            if places:
                found.append((min(places), self._owner_of(optimizer)))
        inner = {id(getattr(optimizer, "optim", None)) for _, optimizer in found}
        found.sort(key=lambda each: each[0])
        return [optimizer for _, optimizer in found if id(optimizer) not in inner]

    def _ids_of(self, optimizer) -> set[int]:
        """Of the parameters that an optimizer steps, in whatever form."""
        now = _held_by(optimizer)
        return now | self._optimizers.get(optimizer, now) if optimizer in self._owners else now

    def _owner_of(self, optimizer):
        owner = self._owners.get(optimizer, lambda: None)()
        return optimizer if owner is None else owner

    def _models_of(self, optimizer) -> list:
        if optimizer not in self._of_optimizer:
            roots = self._roots_of(optimizer) or self._found_for(optimizer)
            models = {id(model): model for model in map(self._model_of, roots)}
            self._of_optimizer[optimizer] = list(models.values())
        return self._of_optimizer[optimizer]

    def _roots_of(self, optimizer) -> list:
        held = self._ids_of(optimizer)
        return [root for root in self._roots if root.module is not None and _has(root, held)]

    @_without_warnings()
    def _found_for(self, optimizer) -> list:
        """Roots of what an optimizer steps, of which no wrapper has told."""
        if self._searches == _SEARCHES_MAX:
            return []
        self._searches += 1
        alive = Alive()
        modules = alive.holding(_held_by(optimizer))
        if not modules:  # it steps copies, or stretches, of what it was made with
            modules = alive.holding(self._optimizers.get(optimizer, set()), every=True)
            owner = alive.owner_of(optimizer)
            if modules:
                self._owners[optimizer] = _no_owner if owner is None else weakref.ref(owner)
        for module in modules:
            self.wrapped(module, found=True)
        return self._roots_of(optimizer)

    def _model_of(self, root) -> _FollowedModel:
        """The roots that an optimizer holds together are one model."""
        if root.model is not None:
            return root.model
        joined = [root]
        for optimizer in list(self._optimizers):
            held = self._ids_of(optimizer)
            if _has(root, held):
                joined += [each for each in self._roots if each.module is not None
                           and each not in joined and _has(each, held)]  # fmt: skip
        model = next((each.model for each in joined if each.model is not None), None)
        if model is None:
            model = _FollowedModel()
            self._models.append(model)
        for each in joined:
            if each.model is None:
                each.join(model)
        model.roots.sort(key=self._roots.index)
        return model


def _no_owner():
    return None


def _held_by(optimizer) -> set[int]:
    return {id(each) for group in optimizer.param_groups for each in group["params"]}


def _has(root, held: set[int]) -> bool:
    return bool(held & {*map(id, _parameters_of(root.module)), *_still_there(root.former)})


def _is_made(module) -> bool:
    """Whether it is there, and not only planned."""
    return module is not None and not any(each.is_meta for each in module.parameters())


def _parameters_of(module) -> list:
    """Those that an optimizer has, which gathered ones may stand in for. None: it is gone."""
    if module is None:
        return []
    shards = _fsdp2.shards_of(module.modules())
    return [shards.get(id(each), each) for each in module.parameters()]


def _still_there(former) -> list[int]:
    """The ids of the parameters that a wrapper replaced and that somebody has still."""
    return [key for key, seen in former.items() if not seen.is_gone()]
