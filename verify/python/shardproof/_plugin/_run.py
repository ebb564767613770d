"""One test on all its ranks, as pytest's own process sees it."""

import contextlib
import dataclasses
import os
import pathlib
import time

from . import _stack
from ._channel import Closed
from ._pool import NoRanks, signal_text

_GATHER_S = 300.0  # for imports and collection, before the deadline begins to run
_GRACE_S = 3.0  # after a rank has failed, for others to end by themselves
_CLOSE_S = 15.0
_DUMP_S = 1.0
_STEP_S = 0.1


@dataclasses.dataclass
class Part:
    """What came of a test on one rank. reports: pytest's, as JSON. broken, exit: why there
    are none. status: how it ended, if it did not stay. stack: of all its
    threads, where it was ended. done: whether it came to the test's end."""

    rank: int
    reports: list = dataclasses.field(default_factory=list)
    warnings: list = dataclasses.field(default_factory=list)
    begun: bool = False
    done: bool = False
    observed: bool = False
    broken: str = ""
    exit: str = ""
    status: "int | None" = None
    ended_by_us: bool = False
    stack: str = ""
    thread: int = 0
    at: "float | None" = None  # of the first thing that went wrong, on a clock that ranks share
    out: str = ""
    err: str = ""
    notes: "list | None" = dataclasses.field(default_factory=list)  # why it is not used again

    @property
    def is_over(self) -> bool:
        return self.done or self.status is not None or bool(self.broken)


class Run:
    """order: what each rank is told of the test. show: called with what a rank has printed, as it
    comes; or None."""

    def __init__(self, pool, mark, order, show=None):
        self._pool, self._mark, self._order, self._show = pool, mark, order, show
        self.parts = [Part(rank) for rank in range(mark.world)]
        self.seconds = None  # set if the deadline was met
        self._ranks = []
        self._shown = {}
        self._plain = None  # of the fixture `reference`: its file or why there is none

    def run(self):
        """\\raises NoRanks."""
        whole = False
        self._pool.check_backend(self._mark.backend, self._mark.world)
        try:
            self._ranks = self._pool.ranks(self._mark.world)
            self._asked = [each.rank for each in self._ranks if self._ask(each)]
            self._wait()
            whole = self._close()
        finally:
            self._read_files()
            if not whole:
                at_once = not all(part.done for part in self.parts)
                self._pool.end_set(self._mark.world, at_once)

    def _ask(self, rank) -> bool:
        order = {**self._order, "rank": rank.rank, "world": self._mark.world,
                 "backend": self._mark.backend, "deadline": self._mark.deadline}  # fmt: skip
        with contextlib.suppress(Closed):
            rank.channel.send(run=order)
            return True
        return False

    def _wait(self):
        """Until all ranks are over, or time is."""
        limit, begun = time.monotonic() + _GATHER_S, False
        while not all(part.is_over for part in self.parts):
            now = time.monotonic()
            if not begun and all(part.begun for part in self.parts):
                begun, limit = True, now + self._mark.deadline
                for rank in self._ranks:
                    _send(rank, go=True)
            wrong = [part.at for part in self.parts if part.at is not None]
            grace = min(wrong, default=now) + _GRACE_S
            if now >= limit or wrong and now >= grace:
                self.seconds = (self._mark.deadline if begun else _GATHER_S) if not wrong else None
                self._end_those_left()
                return
            until = min(limit, grace) if wrong else limit
            self._hear(min(_STEP_S, until - now))

    def _hear(self, seconds):
        for rank, message in self._pool.wait(self._ranks, seconds):
            if message is not None:
                self._take(rank, self.parts[rank.rank], message)
        for rank in self._ranks:  # which ended now, or while something else was waited for
            part = self.parts[rank.rank]
            if rank.status is not None and part.status is None:
                part.status = rank.status
                part.at = part.at or time.monotonic()
        if self._show is not None:
            self._show_news()

    def _take(self, rank, part, message):
        if "hello" in message:
            rank.pid, rank.thread = message["hello"], message["thread"]
        elif "port" in message:
            for other in self._ranks:
                if other is not rank:
                    _send(other, port=message["port"])
        elif "begun" in message:
            part.begun = True
        elif "report" in message:
            part.reports.append(message["report"])
            if message["report"]["outcome"] != "passed":
                part.at = part.at or message["at"]
        elif "warning" in message:
            part.warnings.append(message)
        elif "reference" in message:
            _send(rank, **self._reference(message["reference"]))
        elif "done" in message:
            part.done, part.observed = True, message["observed"]
        elif "closed" in message:
            part.notes = [f"left {each}" for each in message["left"]]
        else:
            self._take_trouble(part, message)

    def _take_trouble(self, part, message):
        for name in ("broken", "exit"):
            if name in message:
                setattr(part, name, message[name])
                part.at = part.at or time.monotonic()

    def _close(self) -> bool:
        """Has the ranks leave the process group, now that none needs another. \\returns whether
        the next test may have them."""
        if not all(part.done for part in self.parts):
            return False
        for rank in self._ranks:
            _send(rank, close=True)
            self.parts[rank.rank].notes = None
        end = time.monotonic() + _CLOSE_S
        waiting = self._ranks
        while waiting and time.monotonic() < end:
            self._hear(_STEP_S)
            waiting = [r for r in waiting if self.parts[r.rank].notes is None and r.status is None]
        for rank in self._ranks:
            part = self.parts[rank.rank]
            if rank.status is not None:
                part.notes = [f"{signal_text(rank.status)} after the test"]
            elif part.notes is None:
                part.notes = [f"did not leave the process group within {_CLOSE_S:g} s"]
        return not any(part.notes for part in self.parts)

    def _end_those_left(self):
        """Has them write their stacks first."""
        left = [each for each in self._ranks if not self.parts[each.rank].is_over]
        for rank in left:
            self.parts[rank.rank].ended_by_us = True
            if rank.pid is not None and rank.status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, _stack.SIGNAL)
        end, lengths = time.monotonic() + _DUMP_S, None
        while time.monotonic() < end:
            time.sleep(_STEP_S)
            now = [os.path.getsize(rank.files[2]) for rank in left]
            if all(now) and now == lengths:
                break
            lengths = now
        for rank in left:
            self.parts[rank.rank].stack = pathlib.Path(rank.files[2]).read_text(errors="replace")

    def _reference(self, asked) -> dict:
        """Made once, for whichever rank asks first: all ask for the same in the same order."""
        key = [asked[name] for name in ("module", "name", "arguments", "checkpoint")]
        if self._plain is None:
            self._plain = {}
        made = self._plain.setdefault(repr(key), {})
        if not made:
            made.update(self._make(asked, len(self._plain)))
        return made

    def _make(self, asked, number) -> dict:
        to = str(pathlib.Path(asked["scratch"]) / f"reference-{number}.pt")
        try:
            (plain,) = self._pool.ranks(0)
        except NoRanks as error:
            return {"why": str(error), "trace": ""}
        _send(plain, call={**asked, "to": to})
        end = time.monotonic() + self._mark.deadline
        while time.monotonic() < end:
            for _, message in self._pool.wait([plain], _STEP_S):
                if message is None:
                    break
                if "called" in message:
                    good = message["called"]
                    return {"made": to} if good else {**message, "reference": None}
            if plain.status is not None:
                break
        why = f"it took more than {self._mark.deadline:g} s"
        if plain.status is not None:
            why = f"it {signal_text(plain.status)}"
        trace = _stack.printed(plain.files[1])
        self._pool.end_set(0)
        return {"why": f"the process that builds the reference: {why}", "trace": trace}

    def _read_files(self):
        for rank in self._ranks:
            part = self.parts[rank.rank]
            part.out, part.err = (_stack.printed(name) for name in rank.files[:2])
            part.thread = rank.thread or 0
        if self._show is not None:
            self._show_news()

    def _show_news(self):
        for rank in self._ranks:
            for file in rank.files[:2]:
                with contextlib.suppress(OSError), open(file, "rb") as opened:
                    opened.seek(self._shown.get(file, 0))
                    data = opened.read()
                    whole = data if self.parts[rank.rank].is_over else data[: data.rfind(b"\n") + 1]
                    self._shown[file] = self._shown.get(file, 0) + len(whole)
                    if whole:
                        self._show(rank.rank, whole.decode(errors="replace"))


def _send(rank, **message):
    with contextlib.suppress(Closed):  # that it has ended is told by the process that forked it
        rank.channel.send(**message)
