"""What a GradScaler leaves to an optimizer that is fused, which then leaves steps out by itself."""

import torch


def divisor_of(optimizer) -> float | None:
    """What an optimizer that is about to step divides its gradients by; None if one of them is not
    finite, so that it leaves this step out."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return 1.0
    if _number(getattr(optimizer, "found_inf", None), 0.0):
        return None
    return _number(getattr(optimizer, "grad_scale", None), 1.0)


def _number(value, default) -> float:
    if not isinstance(value, torch.Tensor):
        return default
    return float(value.to_local() if hasattr(value, "to_local") else value)
