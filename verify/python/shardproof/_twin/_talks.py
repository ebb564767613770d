"""Collectives within a forward pass that are the model's own: then the loss of a rank depends on
the batches of others, as with synchronised batch normalisation or with embeddings that are gathered
from all ranks."""

import sys

# Who sends parameters and buffers, and no activations where all axes are dp_*.
_WRAPPERS = (
    "accelerate.",
    "deepspeed.",
    "megatron_fsdp.",
    "torch.distributed._composable",
    "torch.distributed.fsdp.",
    "torch.distributed.tensor.",
    "torch.nn.parallel.",
)


def who() -> str:
    """Called within a collective of a forward pass: the model's function that asked for it, or ""
    if a wrapper did."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "") + "."
        if module.startswith(_WRAPPERS):
            return ""
        is_torch = module.startswith("torch.") and not module.startswith("torch.nn.")
        if not is_torch and not module.startswith("shardproof."):
            return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        frame = frame.f_back
    return ""


def told(batches) -> str:
    """Why gradients of these batches cannot be told batch by batch; "" if nothing is known. Along
    axes other than dp_*, ranks work on one batch together. batches: of each rank."""
    for own in batches:
        for batch, _ in own:
            if batch.talks and all(axis.startswith("dp_") for axis in batch.case["mesh"]):
                return (f"the loss of a rank depends on the batches of others: {batch.talks} "
                        "communicates in the forward pass")  # fmt: skip
    return ""
