#!/usr/bin/env python3
"""`shardproof.check`, and `seal`, on 1,024 made-up ranks with 10,000 tensors: one rank's part.

    PYTHONPATH=verify/python python verify/bench/check_scale.py

Nothing is sent here: a rank's messages are made and their bytes counted, and then one rank judges
the messages that all ranks would have for it. CPU seconds of one thread; peak of what Python
allocates beyond the made-up model and what came in, by tracemalloc, in a run of its own. Nothing
passes or fails. check_ranks.py measures real ranks.
"""

import argparse
import collections
import dataclasses
import functools
import pickle
import time
import tracemalloc

from shardproof._against import _against
from shardproof._digests import _digest
from shardproof._holdings import _layout
from shardproof._holdings._groups import Groups
from shardproof._holdings._layout import Placement
from shardproof._holdings._record import Record, judge_of
from shardproof._judging import _whole
from shardproof._judging._transport import by_judge
from shardproof._judging._verdict import Verdict, of_share
from shardproof._judging._wire import Receiver, Sender, inflated
from shardproof._syncs import _seal

MIB = 1 << 20
SHAPE = (8192, 16)


class Job:
    """Ranks in replicas of `shards` each. Nine of ten tensors are cut, one is everywhere."""

    def __init__(self, ranks, tensors, shards):
        self.ranks, self.shards = ranks, min(shards, ranks)
        self.names = [f"model.layers.{i // 10}.block.{i % 10}.weight" for i in range(tensors)]
        self._everyone = tuple(range(ranks))
        self._coverage = {}

    def records(self, rank, names, digest=lambda rank: 0, nan=0) -> dict[str, Record]:
        """Of one rank; digest: what is added to that of a sound one."""
        replica, part = divmod(rank, self.shards)
        whole = tuple(range(replica * self.shards, (replica + 1) * self.shards))
        cut = Groups(whole, tuple(range(part, self.ranks, self.shards)), self._everyone)
        same = Groups((rank,), self._everyone)
        return {name: self._record(part, name, cut, same, digest(rank), nan) for name in names}

    def _record(self, part, name, cut, same, added, nan):
        is_cut = not name.endswith("0.weight")
        placements = (Placement("shard", 0),) if is_cut else ()
        owned = (part,) if is_cut else ()
        if owned not in self._coverage:
            runs = _layout.local_runs(SHAPE, placements, (self.shards,) * is_cut, owned)
            self._coverage[owned] = _digest.coverage(runs, 2)
        return Record(
            kind="parameter", dtype="torch.bfloat16", shape=SHAPE, placements=placements,
            groups=cut if is_cut else same, meta=False, unreadable="", aliases="",
            coverage=self._coverage[owned], digest=(part * is_cut + added, 7), nan=nan,
            first_non_finite=5 if nan else None,
        )  # fmt: skip


@dataclasses.dataclass
class Cost:
    seconds: float
    peak: int
    result: object


def measured(work) -> Cost:
    """work: makes what it needs, and returns what is to be measured."""
    prepared = work()
    begin = time.process_time()
    prepared()
    seconds = time.process_time() - begin
    prepared = work()
    tracemalloc.start()
    result = prepared()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Cost(seconds, peak, result)


CASES = {
    "sound": {},
    "one rank differs in all tensors": {"digest": lambda rank: rank == 3},
    "all ranks differ in all tensors": {"digest": lambda rank: rank * rank * 1000},
    "all is NaN": {"nan": 4},
}


def sending(job):
    rank = job.ranks // 2
    records = job.records(rank, job.names)
    sender = Sender(job.ranks)
    first = measured(lambda: lambda: Sender(job.ranks).messages(records))
    sender.messages(records)
    again = measured(lambda: lambda: sender.messages(records))
    for what, cost in (("first call", first), ("later calls", again)):
        size = sum(map(len, cost.result))
        print(f"| sending, {what} | {cost.seconds:.2f} | {cost.peak / MIB:.1f} | {size:,} | |")


def busiest(job):
    """The rank that judges most names, and these."""
    of_judges = collections.defaultdict(list)
    for name in job.names:
        of_judges[judge_of(name, job.ranks)].append(name)
    return max(of_judges.items(), key=lambda each: len(each[1]))


def judging(job):
    judge, mine = busiest(job)
    for case, fields in CASES.items():
        senders = [Sender(job.ranks) for _ in range(job.ranks)]
        first, later = (
            [
                sender.messages(job.records(rank, mine, **fields))[judge]
                for rank, sender in enumerate(senders)
            ]
            for _ in range(2)
        )
        verdict = judged(case, first, functools.partial(Receiver, job.ranks))
        receiver = Receiver(job.ranks)
        of_share(first, receiver.read)
        judged(f"{case}, later calls", later, functools.partial(_itself, receiver))
        merging(job, case, verdict)


def judged(case, messages, make_receiver):
    cost = measured(lambda: functools.partial(of_share, messages, make_receiver().read))
    verdict = cost.result
    print(f"| judging {verdict.tensors} names, {case} | {cost.seconds:.2f} | "
          f"{cost.peak / MIB:.1f} | {sum(map(len, messages)):,} | "
          f"{verdict.count:,} findings |")  # fmt: skip
    return verdict


def _itself(made):
    return made


def merging(job, case, verdict):
    """All judges' verdicts at every rank, of which each is as large as this one's."""
    data = verdict.bounded(max(1, -(-1000 // job.ranks)))
    if not data:
        return

    def merge():
        whole = Verdict()
        for _ in range(job.ranks):
            whole.add(data)
        return whole

    cost = measured(lambda: merge)
    print(f"| all ranks' verdicts, {case} | {cost.seconds:.2f} | {cost.peak / MIB:.1f} | "
          f"{len(data) * job.ranks:,} | |")  # fmt: skip


def sealing(job):
    """What `seal` sends and judges, and `check(against=)` with a seal; rank 0 writes the seal."""
    judge, mine = busiest(job)

    def parts(rank, names):
        records = job.records(rank, names)
        return {name: _whole.Part(each.dtype, each.shape, each.groups.whole, each.coverage,
                                  each.digest, each.kind)
                for name, each in records.items()}  # fmt: skip

    own = parts(job.ranks // 2, job.names)
    row("seal: sending", measured(lambda: lambda: by_judge(own, job.ranks)), own_bytes)
    messages = [by_judge(parts(rank, mine), job.ranks)[judge] for rank in range(job.ranks)]
    cost = measured(lambda: lambda: _seal._judged(list(map(inflated, messages))))
    row(f"seal: judging {len(mine)} names", cost, messages)
    verdict, (wholes, _) = cost.result
    assert verdict.tensors == len(mine) and not verdict.folds
    one = next(iter(wholes.values()))
    shares = [dict.fromkeys(job.names[rank :: job.ranks], one) for rank in range(job.ranks)]
    shares = [pickle.dumps((share, {}), protocol=5) for share in shares]
    row("seal: rank 0 receives all", measured(lambda: functools.partial(received, shares)), shares)


def against(job):
    """What a rank finds of a checkpoint in which all differs, of replicas one having read."""
    judge, mine = busiest(job)

    def report(rank, names):
        what = "element 14 is 0xbe80 (-0.25), in the checkpoint 0xbe82 (-0.25390625); 1 of 6 differ"
        return {name: ([((rank,), what, 14)], None, []) for name in names}

    own = report(job.ranks // 2, job.names)
    row("against: sending", measured(lambda: lambda: by_judge(own, job.ranks)), own_bytes)
    messages = [by_judge(report(rank, mine), job.ranks)[judge] for rank in range(job.ranks)]
    work = functools.partial(judged_on_disk, messages)
    row(f"against: judging {len(mine)} names", measured(lambda: work), messages)


def judged_on_disk(messages):
    source = _against.Source()
    return _against._judged(list(map(inflated, messages)), {}, None, source, None, set())


def received(shares):
    tensors, _ = zip(*map(pickle.loads, shares), strict=True)
    return _seal._document({n: each for share in tensors for n, each in share.items()}, {}, "", "")


def own_bytes(cost):
    return cost.result


def row(what, cost, messages):
    size = sum(map(len, messages(cost) if callable(messages) else messages))
    print(f"| {what} | {cost.seconds:.2f} | {cost.peak / MIB:.1f} | {size:,} | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=128, help="ranks of a replica")
    asked = parser.parse_args()
    job = Job(asked.ranks, asked.tensors, asked.shards)
    print(f"{job.ranks} made-up ranks in replicas of {job.shards}, {asked.tensors:,} tensors")
    print("| one rank's part | CPU s | peak MiB | bytes | |\n| --- | --- | --- | --- | --- |")
    sending(job)
    judging(job)
    sealing(job)
    against(job)


if __name__ == "__main__":
    main()
