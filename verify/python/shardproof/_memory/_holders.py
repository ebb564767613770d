"""Who holds tensors that are none of the model's: the variables, attributes and closures that
Python comes to them by. What PyTorch alone holds, such as what a backward pass needs, has none."""

import collections
import gc
import sys
import types

import torch

from .._package import is_ours
from ._stacks import short
from ._storage import storage_of

_DEPTH_MAX = 6
_TENSORS_MAX = 20_000
_OPTIMIZED = 1  # CO_OPTIMIZED: a function's frame, whose locals are copied to be looked at


def foreign(accounted: set[int]) -> dict[int, tuple[torch.Tensor, int]]:
    """accounted: addresses of storages that are not asked for. \\returns by the id of a tensor the
    tensor and its storage's bytes, of each other storage that Python comes to, one tensor."""
    found, seen = {}, set(accounted)
    objects = gc.get_objects()
    # Of an object only its type is looked at: more could run code of the job.
    kinds = {kind for kind in set(map(type, objects)) if torch.Tensor in kind.__mro__}
    with torch._C.DisableTorchFunctionSubclass():
        for each in [each for each in objects if type(each) in kinds]:
            storage = storage_of(each)
            if storage is None or storage.data_ptr() in seen:
                continue
            seen.add(storage.data_ptr())
            found[id(each)] = (each, storage.nbytes())
    return found


def holders(tensors, bytes_min: int) -> list[dict]:
    """tensors: as foreign() gives them. \\returns {"what", "bytes", "count", "stack"} of each
    holder of at least bytes_min in tensors, the largest first; each storage is told of once."""
    if sum(size for _, size in tensors.values()) < bytes_min:
        return []
    if len(tensors) > _TENSORS_MAX:
        largest = sorted(tensors.items(), key=lambda item: -item[1][1])[:_TENSORS_MAX]
        tensors = dict(largest)
    found = _named(tensors)
    sums = {}
    for key, (_, size) in tensors.items():
        named = found.get(key, ("no variable that Python shows", ""))
        total, count = sums.get(named, (0, 0))
        sums[named] = (total + size, count + 1)
    told = [
        {"what": what, "bytes": size, "count": count, "stack": [where] if where else []}
        for (what, where), (size, count) in sums.items()
        if size >= bytes_min
    ]
    return sorted(told, key=lambda each: -each["bytes"])


def _named(tensors) -> dict[int, tuple[str, str]]:
    """Of each tensor, by its id: what holds it, and where that stands in whose code.

    From a tensor it goes to what refers to it, and on until something has a name.
    """
    roots = _roots()
    found = {}
    # By the id of an object: the object, and the tensors that it leads to, each with the name that
    # it has, or what leads to it has, there.
    here = {key: (tensor, {key: ""}) for key, (tensor, _) in tensors.items()}
    seen = set(here)
    for _ in range(_DEPTH_MAX):
        for key, (each, leads_to) in list(here.items()):
            is_named = False
            for tensor, label in leads_to.items():
                named = _name_of(each, label, roots.get(key))
                is_named = named is not None
                if is_named:
                    found.setdefault(tensor, named)
            if is_named:
                del here[key]
                seen.discard(key)  # others may lead to it by another way
        here = {key: entry for key, entry in here.items()
                if any(tensor not in found for tensor in entry[1])}  # fmt: skip
        if not here:
            break
        here = _referring_to(here, seen, {id(tensors), *map(id, tensors.values())})
    return found


def _referring_to(here, seen, ours) -> dict:
    """ours: ids of containers that are not the job's. One pass over all objects: for many objects
    gc.get_referrers would take as many."""
    ours = {id(here), *map(id, here.values()), *ours}
    wanted = set(here)
    found = {}
    for each in gc.get_objects():
        referents = gc.get_referents(each)
        if wanted.isdisjoint(map(id, referents)):
            continue
        if id(each) in ours or id(each) in seen or type(each) in _OF_PYTHON:
            continue
        seen.add(id(each))
        labels = _labels_in(each)
        leads_to = {}
        for inner in referents:
            for tensor, label in here.get(id(inner), (None, {}))[1].items():
                leads_to[tensor] = labels.get(id(inner), label)
        found[id(each)] = (each, leads_to)
    return found


def _labels_in(each) -> dict[int, str]:
    """By the id of what a dict or an object holds: the name that it has there."""
    values = each if type(each) is dict else None
    if values is None and type(each) not in _PLAIN:
        try:
            values = object.__getattribute__(each, "__dict__")
        except (AttributeError, TypeError):
            return {}
    if type(values) is not dict:
        return {}
    return {id(value): key for key, value in list(values.items()) if isinstance(key, str)}


def _roots() -> dict[int, tuple[str, str]]:
    """By the id of a value: the variable that has it, of a function that runs or of a module."""
    found = {}
    threads = dict(sys._current_frames())
    for frame in threads.values():
        while frame is not None:
            code = frame.f_code
            if not is_ours(code.co_filename) and code.co_flags & _OPTIMIZED:
                where = f"{short(code.co_filename)}:{frame.f_lineno} {code.co_name}"
                for name, value in _locals_of(frame):
                    found.setdefault(id(value), (f"`{name}` in {code.co_name}", where))
            frame = frame.f_back
    threads.clear()  # it has this frame too: in a circle, all would stay
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if type(module) is not types.ModuleType or is_ours(file):
            continue
        where = short(file)
        for variable, value in list(vars(module).items()):
            if type(value) not in _SHARED:
                found.setdefault(id(value), (f"`{variable}` of module {name}", where))
    return found


def _locals_of(frame) -> list[tuple[str, object]]:
    """Without leaving in the frame what it is asked for: that would keep it alive."""
    values = frame.f_locals
    found = list(values.items())
    if type(values) is dict and sys.getrefcount(values) <= 3:  # the frame's, ours, the argument
        values.clear()
    return found


def _name_of(each, label, root) -> tuple[str, str] | None:
    """root: the variable that has the object, if one does. \\returns None if what holds it is to be
    looked at."""
    if root is not None and not root[0].startswith("`self`"):
        return root
    kind = type(each)
    if kind is types.FunctionType:
        code = each.__code__
        return (f"closure of {each.__qualname__}",
                f"{short(code.co_filename)}:{code.co_firstlineno} {code.co_name}")  # fmt: skip
    for prefix in ("gi", "cr", "ag"):
        code = getattr(each, f"{prefix}_code", None) if kind in _RUNNING else None
        if code is not None:
            return (f"locals of {code.co_name}, which has not ended",
                    f"{short(code.co_filename)}:{code.co_firstlineno} {code.co_name}")  # fmt: skip
    if issubclass(kind, type):
        return f"`{label}` of class {each.__module__}.{each.__qualname__}", ""
    if kind in _PLAIN or torch.Tensor in kind.__mro__:
        return root
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    of = f"an object of class {kind.__module__}.{kind.__qualname__}"
    return f"`{label}` of {of}" if label else of, short(file)


_OF_PYTHON = (types.FrameType, types.ModuleType)
# Values that hold no tensor, or say themselves what they are.
_SHARED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, str, int, float,
           bool, type(None))  # fmt: skip
_RUNNING = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_PLAIN = (dict, list, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict,
          collections.deque, types.CellType, types.MappingProxyType, types.MethodType)  # fmt: skip
