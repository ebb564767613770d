"""Where torch.ops.shardproof.digest comes from."""

import os
import pathlib
import warnings

import torch

from .._package import FOLDER


def load_op():
    """Registers torch.ops.shardproof.digest. \\returns whether it is there."""
    places = [pathlib.Path(FOLDER) / "_digest_op.so"]
    if named := os.environ.get("SHARDPROOF_DIGEST_OP"):
        places.insert(0, pathlib.Path(named))
    if os.environ.get("SHARDPROOF_NO_DIGEST_OP"):
        return False
    why = "was not found beside the package"
    for place in places:
        if place.exists():
            try:
                torch.ops.load_library(str(place))
                return True
            except OSError as error:
                reason = error.__cause__ or error
                why = f"in {place} cannot be loaded by torch {torch.__version__} ({reason})"
    warnings.warn(
        f"shardproof: torch.ops.shardproof.digest {why}: the same digests are computed by plain "
        "PyTorch operations, which is slower (pip install, or SHARDPROOF_DIGEST_OP=the "
        "_digest_op.so of a build)",
        stacklevel=2,
    )
    return False
