"""Faults that a rank of a subject does to itself, when its moment has come."""

import os
import signal
import time

_SLOW_SECONDS = 0.3

_ACTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda: os._exit(0),
    "slow": lambda: time.sleep(_SLOW_SECONDS),
}


class Faults:
    """Those of one rank, of which each strikes once: after a stage or before a collective.

    orders: {"id", "where", "model", "rank", "act", "stage", "step"?, "collective"?}, of all ranks.
    """

    def __init__(self, writer, rank: int, orders: list[dict]):
        self._writer = writer
        self._waiting = [order for order in orders if order["rank"] == rank]
        self._collectives = 0

    def observed(self, stage: str, step: int):
        self._strike(
            lambda order: (
                "collective" not in order
                and order["stage"] == stage
                and order.get("step", step) == step
            ),
            f"at stage {stage}",
        )

    def before_collective(self, op: str):
        number = self._collectives
        self._collectives += 1
        self._strike(lambda order: order.get("collective") == number, f"before a {op}")

    def _strike(self, is_due, moment: str):
        due = [order for order in self._waiting if is_due(order)]
        for order in due:
            self._waiting.remove(order)
            self._writer.fault(
                id=order["id"], where=order["where"], detail=moment, model=order["model"]
            )
            _ACTS[order["act"]]()
