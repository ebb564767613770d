"""In which dtypes a forward pass has the tensors of a model."""

import torch

from .._holdings._names import canonical_name


class ForwardDtypes:
    """Of the loss that is being computed. One hook for the whole job: code that torch.compile made
    is made anew where there is another hook, and after eight times no more."""

    def __init__(self):
        self._seen = None  # by id of a module

    def listen(self):
        torch.nn.modules.module.register_module_forward_hook(self._ran)

    def begin(self):
        self._seen = {}

    def end(self, model) -> dict:
        """By name."""
        seen, self._seen = self._seen, None
        found, above = {}, {}
        for prefix, module in model.named_modules(remove_duplicate=False):
            is_compiled, narrow = above.get(prefix.rpartition(".")[0], (False, None))
            is_compiled = is_compiled or _is_compiled(module)
            narrow = _policy_of(module) or narrow
            above[prefix] = is_compiled, narrow
            own = seen.get(id(module))
            if own is None and is_compiled:
                own = _as_by_policy(module, narrow)
            for name, dtype in (own or {}).items():
                found[canonical_name(model, prefix, name)] = dtype
        return found

    def _ran(self, module, arguments, result):  # what it returns would be the module's result
        if not torch.compiler.is_compiling() and self._seen is not None:
            self._seen.setdefault(id(module), _dtypes_in(module))


def _dtypes_in(module) -> dict:
    """Of its own tensors by name; FSDP1 has views of a flat parameter as plain attributes."""
    plain = [each for each in vars(module).items() if isinstance(each[1], torch.Tensor)]
    tensors = [*module._parameters.items(), *module._buffers.items(), *plain]
    return {name: tensor.dtype for name, tensor in tensors if tensor is not None}


def _is_compiled(module) -> bool:
    """Of the class that torch.compile returns, which is not imported for that."""
    is_made = type(module).__name__ == "OptimizedModule"
    return is_made or getattr(module, "_compiled_call_impl", None) is not None


def _policy_of(module):
    """To which dtype FSDP casts parameters from here on; None if to no other."""
    policy = getattr(module, "mixed_precision", None)
    if state_of := getattr(module, "_get_fsdp_state", None):
        policy = getattr(state_of(), "_mp_policy", None)
    return getattr(policy, "param_dtype", None)


def _as_by_policy(module, narrow) -> dict:
    """Of what only compiled code runs, where no hook is called."""
    return {
        name: narrow
        if narrow and dtype.is_floating_point and name not in module._buffers
        else dtype
        for name, dtype in _dtypes_in(module).items()
    }
