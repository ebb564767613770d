"""FSDP2: between forward and backward a module may hold gathered parameters, or larger shards; its
own shards, which the optimizer has, are kept aside."""

from torch import nn


def shards_of(modules) -> dict[int, nn.Parameter]:
    """The shard of each parameter that stands in for it, by the latter's id."""
    found = {}
    for module in modules:
        state_of = getattr(module, "_get_fsdp_state", None)
        if state_of is None:
            continue
        state = state_of()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # torch before 2.12 has one at most
            groups = [state._fsdp_param_group]
        for group in groups:
            for parameter in group.fsdp_params if group else []:
                for kept_as in ("_unsharded_param", "_sharded_post_forward_param"):
                    if (stands_in := getattr(parameter, kept_as, None)) is not None:
                        found[id(stands_in)] = parameter.sharded_param
    return found
