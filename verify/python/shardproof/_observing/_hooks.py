"""Where an attached job is listened to: functions of frameworks, replaced as they are imported by
ones that do the same and then tell of it."""

import functools
import sys
import threading

from . import _imports

_inside = threading.local()  # how many of the functions below this thread is in


def install(told):
    """told: has a method for each thing that is told of, and makes the changes (_attach.Job)."""
    for module, change in _CHANGES.items():
        _imports.when_imported(module, functools.partial(told.change, change))


def listen(owner, name, before=None, after=None, *, outermost=False):
    """Has before(arguments, named) and after(result, what before gave, arguments, named) called
    around a function of a module or class. outermost: not within another that is listened to so."""
    original = getattr(owner, name, None)
    if original is None or not callable(original):
        return  # this release has no such function
    compiler = getattr(sys.modules.get("torch"), "compiler", None)  # which need not be imported yet
    is_compiling = getattr(compiler, "is_compiling", bool)

    @functools.wraps(original)
    def listened(*arguments, **named):
        if is_compiling():  # first: a compiler comes no further
            return original(*arguments, **named)
        depth = getattr(_inside, "depth", 0)
        if outermost and depth:
            return original(*arguments, **named)
        _inside.depth = depth + outermost
        try:
            given = before(arguments, named) if before else None
            result = original(*arguments, **named)
        finally:
            _inside.depth = depth
        if after:
            after(result, given, arguments, named)
        return result

    if isinstance(owner, type):
        setattr(owner, name, listened)
    else:
        _imports.replace(original, listened)
        setattr(owner, name, listened)


def _pause(told, owner, name):
    """Nothing is told of what a function of a module or class does."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def paused(*arguments, **named):
        with told.paused():
            return original(*arguments, **named)

    setattr(owner, name, paused)


def _first(arguments, named, name):
    return arguments[0] if arguments else named.get(name)


def _modules_in(value):
    """A module, or those in a list of them."""
    several = value if isinstance(value, list | tuple) else [value]
    return [each for each in several if hasattr(each, "named_modules")]


def _fully_shard(told, module):
    def before(arguments, named):
        return told.wrapping(_modules_in(_first(arguments, named, "module")))

    def after(result, former, arguments, named):
        told.wrapped(_modules_in(_first(arguments, named, "module")), former)

    listen(module, "fully_shard", before, after)


def _replicate(told, module):
    """The composable one: it makes a DDP of the bare parameters, which is no model of the job's."""
    listen(module, "replicate", after=lambda r, g, a, n: told.wrapped(
        _modules_in(_first(a, n, "module")), None))  # fmt: skip
    _pause(told, module._ReplicateState, "init")


def _wrapper(class_name):
    """A class whose objects wrap the module that they are given."""

    def change(told, module):
        def before(arguments, named):
            return told.wrapping(_modules_in(arguments[1] if len(arguments) > 1
                                             else named.get("module")))  # fmt: skip

        def after(result, former, arguments, named):
            told.wrapped([arguments[0]], former)

        listen(getattr(module, class_name), "__init__", before, after)

    return change


def _pretrained(told, module):
    owner = module.PreTrainedModel
    original = owner.__dict__["from_pretrained"].__func__

    @functools.wraps(original)
    def listened(cls, *arguments, **named):
        result = original(cls, *arguments, **named)
        told.wrapped(_modules_in(result[0] if isinstance(result, tuple) else result), None)
        return result

    owner.from_pretrained = classmethod(listened)


def _accelerator(told, module):
    def after(result, given, arguments, named):
        told.wrapped(_modules_in(result), None)

    for name in ("prepare", "prepare_model"):
        listen(module.Accelerator, name, after=after)


def _module(told, module):
    listen(module.Module, "load_state_dict", after=lambda r, g, a, n: told.loaded(a[0]))


def _optimizer(told, module):
    listen(module.Optimizer, "__init__", after=lambda r, g, a, n: told.made(a[0]))
    module.register_optimizer_step_pre_hook(lambda optimizer, a, n: told.before_step(optimizer))
    module.register_optimizer_step_post_hook(lambda optimizer, a, n: told.after_step(optimizer))


def _saver(told, module):
    for name in ("save", "async_save"):
        listen(module, name, outermost=True,
                after=lambda r, g, a, n: told.saved(_first(a, n, "state_dict"), True))  # fmt: skip


def _loader(told, module):
    listen(module, "load", outermost=True,
            after=lambda r, g, a, n: told.read(_first(a, n, "state_dict")))  # fmt: skip


def _optimizer_state(told, module):
    # It takes a step of zeros, so that an optimizer has its state: none of the job's.
    _pause(told, module, "_init_optim_state")


def _serialization(told, module):
    listen(module, "save", outermost=True,
            after=lambda r, g, a, n: told.saved(_first(a, n, "obj")))  # fmt: skip


def _safetensors(told, module):
    listen(module, "save_file", outermost=True,
            after=lambda r, g, a, n: told.saved(_first(a, n, "tensors")))  # fmt: skip


def _groups(told, module):
    def leaving(arguments, named):
        group = _first(arguments, named, "group")
        if group is None or group is module.group.WORLD:
            told.leaving()

    listen(module, "init_process_group", after=lambda r, g, a, n: told.joined(module))
    listen(module, "destroy_process_group", before=leaving)


_CHANGES = {
    "torch.distributed.fsdp._fully_shard._fully_shard": _fully_shard,
    "torch.distributed._composable.replicate": _replicate,
    "torch.distributed.fsdp.fully_sharded_data_parallel": _wrapper("FullyShardedDataParallel"),
    "torch.nn.parallel.distributed": _wrapper("DistributedDataParallel"),
    "transformers.modeling_utils": _pretrained,
    "accelerate.accelerator": _accelerator,
    "torch.nn.modules.module": _module,
    "torch.optim.optimizer": _optimizer,
    "torch.distributed.checkpoint.state_dict_saver": _saver,
    "torch.distributed.checkpoint.state_dict_loader": _loader,
    "torch.distributed.checkpoint.state_dict": _optimizer_state,
    "torch.serialization": _serialization,
    "safetensors.torch": _safetensors,
    "torch.distributed.distributed_c10d": _groups,
}
