"""Shardproof for Python: what a training job asks of it.

import shardproof
shardproof.check(model)    # on every rank: raises if the ranks do not hold one and the same model
shardproof.check(model, against="runs/step-90")    # and whether that checkpoint is of it
shardproof.seal(model, to="step-90.json")    # its digests, as `shardproof seal` of a checkpoint
shardproof.check(engine, against=shardproof.Manifest.from_json(text))    # what a trainer sealed
shardproof.observe("ready", model=model)    # or records it, for `shardproof report` to judge
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._check import Finding, Mismatch, Outcome, Pending, check
    from ._manifest import Manifest
    from ._script import observe
    from ._seal import seal
    from ._sealing_writer import SealingWriter
    from ._taken import digests

__all__ = [
    "Finding", "Manifest", "Mismatch", "Outcome", "Pending", "SealingWriter", "check", "digests",
    "observe", "seal",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name):
    """Imports what is asked for: torch takes seconds, and the command (__main__.py) does
    without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "SealingWriter":  # of DCP, which takes its time
        from ._sealing_writer import SealingWriter

        return SealingWriter
    from . import _check, _manifest, _script, _seal, _taken

    modules = {"Manifest": _manifest, "digests": _taken, "observe": _script, "seal": _seal}
    return getattr(modules.get(name, _check), name)
