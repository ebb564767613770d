"""What `check` sends between ranks: by a Gloo group of its own, each wait within a deadline."""

import contextlib
import datetime
import pickle
import re
import weakref

import torch
import torch.distributed as dist

from .._holdings._groups import dist_rank, world
from .._holdings._record import judge_of
from .._printable import printable
from ._meeting import meet
from ._wire import Receiver, Sender, deflated, inflated

_FAILED = -1
_REASON_BYTES_MAX = 2000


class Link:
    """A Gloo group, and what has been told through it. torch alone keeps the group:
    dist.destroy_process_group then ends its threads. One that ran on would take the interpreter
    down now and then, by letting go of a tensor while that finalises."""

    def __init__(self, group, world_size):
        self.group = group if group is None else weakref.ref(group)
        self.sender, self.receiver = Sender(world_size), Receiver(world_size)
        # Of what is held against a checkpoint, which may have other names.
        self.other_sender, self.other_receiver = Sender(world_size), Receiver(world_size)
        self.is_broken = False  # after a wait that failed: the next call makes another

    def forget(self):
        for each in (self.sender, self.receiver, self.other_sender, self.other_receiver):
            each.forget()


class Transport:
    """deadline: seconds. whose: what the caller called.

    \\raises TimeoutError, of any method, if a rank does not come.
    """

    _links: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of a world's: by deadline

    def __init__(self, deadline, whose="check"):
        self._whose = whose
        self.world_size, self.rank = len(world()), dist_rank()
        self._deadline = deadline
        self._link = self._linked() if self.world_size > 1 else Link(None, 1)
        self.sender, self.receiver = self._link.sender, self._link.receiver

    def exchange(self, own: list[bytes] | None) -> list[bytes] | None:
        """own: a message for each rank; None if this rank has failed. \\returns each rank's message
        for this one, or None if any rank has failed."""
        sent = [_FAILED] * self.world_size if own is None else [len(each) for each in own]
        if self.world_size == 1:
            return own
        sizes = torch.empty(self.world_size, dtype=torch.int64)
        with self._deadline_named() as group:
            dist.all_to_all_single(sizes, torch.tensor(sent, dtype=torch.int64), group=group)
        sizes = sizes.tolist()
        # One that has failed said so to every rank, so that all of them stop here.
        if own is None or _FAILED in sizes:
            return None
        received = bytearray(sum(sizes))
        with self._deadline_named() as group:
            dist.all_to_all_single(
                _tensor(received), _tensor(bytearray().join(own)), sizes, sent, group=group
            )
        ends, at = [], 0
        for size in sizes:
            ends.append((at, at + size))
            at += size
        view = memoryview(received)
        return [view[begin:end] for begin, end in ends]

    def to_judges(self, own: dict | None) -> list[dict] | None:
        """own: {name: what this rank says of it}; None if it has failed. \\returns what each rank
        says of the names that this one judges; None if any rank has failed."""
        if own is None:
            return self.exchange(None)
        received = self.exchange(by_judge(own, self.world_size))
        return None if received is None else [inflated(each) or {} for each in received]

    def records_to_judges(self, own: dict) -> list[dict]:
        """own: records by name, of what is held against a checkpoint. \\returns those of each rank
        of the names that this one judges."""
        received = self.exchange(self._link.other_sender.messages(own, held=len(own)))
        found, cause = [], None
        try:
            reader = self._link.other_receiver
            found = [reader.read(source, message)[0] for source, message in enumerate(received)]
        except Exception as error:  # whatever it is, the other ranks wait to be told
            cause = error
        self.agree("cannot judge", cause)
        return found

    def to_first(self, own) -> list | None:
        """What all ranks say, at rank 0; elsewhere None."""
        empty = pickle.dumps(None)
        messages = [pickle.dumps(own, protocol=5), *[empty] * (self.world_size - 1)]
        received = [pickle.loads(each) for each in self.exchange(messages)]
        return received if self.rank == 0 else None

    def everybody(self, numbers: list[int]) -> list[list[int]]:
        """A few numbers of each rank, as many of each."""
        if self.world_size == 1:
            return [numbers]
        found = torch.empty(self.world_size * len(numbers), dtype=torch.int64)
        with self._deadline_named() as group:
            own = torch.tensor(numbers, dtype=torch.int64)
            dist.all_gather_into_tensor(found, own, group=group)
        return found.view(self.world_size, len(numbers)).tolist()

    def short(self, own: bytes) -> list[bytes]:
        """Of everybody; all take as much room as the longest."""
        sizes = [size for (size,) in self.everybody([len(own)])]
        if self.world_size == 1:
            return [own]
        room = max(sizes)
        found = bytearray(room * self.world_size)
        with self._deadline_named() as group:
            padded = _tensor(bytearray(own.ljust(room, b"\0")))
            dist.all_gather_into_tensor(_tensor(found), padded, group=group)
        return [bytes(found[rank * room :][:size]) for rank, size in enumerate(sizes)]

    def objects(self, own) -> list:
        """Of everybody. What travels grows with the ranks and with what each says."""
        return [pickle.loads(each) for each in self.short(pickle.dumps(own))]

    def of_some(self, own: bytes) -> dict[int, bytes]:
        """What those ranks say that say anything."""
        sizes = [size for (size,) in self.everybody([len(own)])]
        found = {}
        for rank, size in enumerate(sizes):
            if not size:
                continue
            data = bytearray(own if rank == self.rank else size)
            if self.world_size > 1:
                with self._deadline_named() as group:
                    dist.broadcast(_tensor(data), src=rank, group=group)
            found[rank] = bytes(data)
        return found

    def reasons(self, own: str) -> dict[int, str]:
        """A line of each rank that has one."""
        line = printable(" ".join(own.split())).encode()[:_REASON_BYTES_MAX]
        return {rank: text.decode(errors="replace") for rank, text in self.of_some(line).items()}

    def add_up(self, tensor):
        """In place, over all ranks."""
        if self.world_size > 1:
            with self._deadline_named() as group:
                dist.all_reduce(tensor, group=group)

    def largest(self, tensor):
        """In place, of all ranks."""
        if self.world_size > 1:
            with self._deadline_named() as group:
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)

    def agree(self, what: str, cause: BaseException | None):
        """Raises on all ranks alike if any of them has a cause, as `fail` does."""
        if any(failed for (failed,) in self.everybody([int(cause is not None)])):
            self.fail(what, cause)

    def fail(self, what: str, cause: BaseException | None):
        """Raises on all ranks alike, for the first rank that says why."""
        reasons = self.reasons(f"{type(cause).__name__}: {cause}" if cause else "")
        rank, reason = min(reasons.items())
        raise RuntimeError(f"shardproof.{self._whose}: {what}: rank {rank}: {reason}") from cause

    def forget(self):
        """After a failure: what one side believes that the other knows may not have come."""
        self._link.forget()

    def _linked(self):
        links = self._links.setdefault(dist.group.WORLD, {})
        link = links.get(self._deadline)
        if link is None or link.is_broken or link.group() is None:
            timeout = datetime.timedelta(seconds=self._deadline)
            with self._deadline_named():
                self._meet()
                group = dist.new_group(backend="gloo", timeout=timeout)
            link = links[self._deadline] = Link(group, self.world_size)
        return link

    def _meet(self):
        store = dist.distributed_c10d._get_default_store()
        if store is not None:  # of MPI there is none
            meet(store, self.rank, self.world_size, self._deadline, f"check/{self._deadline:g}")

    @contextlib.contextmanager
    def _deadline_named(self):
        link = getattr(self, "_link", None)  # None while it is made
        try:
            yield link.group() if link is not None else None
        except RuntimeError as error:
            if link is not None:
                link.is_broken = True
            # Gloo's first sentence, without the line of its source.
            why = re.sub(r"^\[\S*\] ", "", str(error)).partition("\n")[0].partition(". ")[0]
            raise TimeoutError(
                f"shardproof.{self._whose}: rank {self.rank}: not every rank called {self._whose} "
                f"in time: one of the job's {self.world_size} ranks ended, or did not come within "
                f"{self._deadline:g} s: {why}"
            ) from error


def by_judge(own: dict, world_size: int) -> list[bytes]:
    """{name: what is said of it} as a message for each rank, of the names that it judges."""
    parts: list[dict] = [{} for _ in range(world_size)]
    for name, said in own.items():
        parts[judge_of(name, world_size)][name] = said
    return [deflated(part) for part in parts]


def _tensor(data: bytearray) -> torch.Tensor:
    """uint8, over the same memory."""
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
