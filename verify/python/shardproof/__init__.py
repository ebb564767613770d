"""Shardproof for Python: what a training job asks of it.

    import shardproof
    shardproof.check(model)    # on every rank: raises if the ranks do not hold one and the same model
"""

from ._check import Finding, Mismatch, Outcome, check

__all__ = ["Finding", "Mismatch", "Outcome", "check"]
__version__ = "0.1.0"
