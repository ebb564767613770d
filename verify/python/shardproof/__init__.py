"""Shardproof for Python: what a training job asks of it.

    import shardproof
    shardproof.check(model)    # on every rank: raises if the ranks do not hold one and the same model
    shardproof.observe("ready", model=model)    # or records it, for `shardproof report` to judge
"""

from ._check import Finding, Mismatch, Outcome, check
from ._script import observe

__all__ = ["Finding", "Mismatch", "Outcome", "check", "observe"]
__version__ = "0.1.0"
