"""Shardproof for Python: what a training job asks of it.

import shardproof
shardproof.check(model)    # on every rank: raises if the ranks do not hold one and the same model
shardproof.check(model, against="runs/step-90")    # and whether that checkpoint is of it
shardproof.seal(model, to="step-90.json")    # its digests, as `shardproof seal` of a checkpoint
shardproof.check(engine, against=shardproof.Manifest.from_json(text))    # what a trainer sealed
shardproof.observe("ready", model=model)    # or records it, for `shardproof report` to judge
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._checking._check import Finding, Mismatch, Outcome, Pending, check
    from ._checking._taken import digests
    from ._observing._script import observe
    from ._stored._manifest import Manifest
    from ._syncs._scaled import Scaled
    from ._syncs._seal import seal
    from ._syncs._sealing_writer import SealingWriter

__all__ = [
    "Finding", "Manifest", "Mismatch", "Outcome", "Pending", "Scaled", "SealingWriter", "check",
    "digests", "observe", "seal",
]  # fmt: skip
_HOMES = {
    "Manifest": "._stored._manifest", "Scaled": "._syncs._scaled",
    "SealingWriter": "._syncs._sealing_writer", "digests": "._checking._taken",
    "observe": "._observing._script", "seal": "._syncs._seal",
}  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name):
    """Imports what is asked for: torch takes seconds, and the command (__main__.py) does
    without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(
            f"shardproof.{name} needs torch, which is not installed: "
            f"{sys.executable} -m pip install torch",
            name="torch",
        )
    home = _HOMES.get(name, "._checking._check")
    return getattr(importlib.import_module(home, __name__), name)
