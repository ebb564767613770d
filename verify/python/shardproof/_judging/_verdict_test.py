"""What the shares' judges find together is what one judge of everything finds."""

import dataclasses
import itertools

import pytest

from shardproof._checking._check_test import record
from shardproof._holdings._groups import Groups
from shardproof._judging._judge import judge
from shardproof._judging._verdict import Verdict, of_share, settled
from shardproof._judging._wire import Receiver, Sender

WORLD = 5
EVERYONE = tuple(range(WORLD))


def job():
    """For each rank its records, with mistakes of many kinds."""
    ranks = []
    for rank in EVERYONE:
        sound = record(groups=Groups((rank,), EVERYONE))
        own = {f"layers.{i}.{part}": sound for i in range(30) for part in ("up", "down")}
        own |= {f"optimizer.{name}.step": sound for name in list(own)[:20]}
        ranks.append(own)
    for i in range(4, 24):
        ranks[2][f"layers.{i}.up"] = dataclasses.replace(ranks[2]["layers.0.up"], digest=(1, i))
    for own in ranks:
        own["layers.1.down"] = dataclasses.replace(own["layers.1.down"], nan=1)
        own["odd"] = dataclasses.replace(own["layers.0.up"], groups=None)
        own["odder"] = own["odd"]
    del ranks[4]["layers.3.down"], ranks[1]["optimizer.layers.0.up.step"]
    empty = dataclasses.replace(ranks[3]["layers.0.down"], coverage=(0, 0))
    ranks[3]["layers.0.down"] = empty  # so that it needs no state
    del ranks[3]["optimizer.layers.0.down.step"]
    return ranks


def shares(ranks, unused=lambda rank: ()):
    sent = [Sender(WORLD).messages(own, unused(rank)) for rank, own in enumerate(ranks)]
    return [
        of_share([messages[judge] for messages in sent], Receiver(WORLD).read) for judge in EVERYONE
    ]


class Others:
    """What settled asks for, where all verdicts are at hand."""

    def __init__(self, verdicts, most):
        self._verdicts, self._most = verdicts, most

    def everybody(self, own):
        return [
            [each.tensors, each.comparisons, each.count, int(each.has_details), rank]
            if each else [-1, 0, 0, 0, 0]
            for rank, each in enumerate(self._verdicts)
        ]  # fmt: skip

    def of_some(self, own):
        told = [each.bounded(self._most) for each in self._verdicts]
        return {rank: data for rank, data in enumerate(told) if data}


def whole(verdicts, most=1000):
    return settled(verdicts[0], Others(verdicts, most))


def plain(findings):
    return sorted((each.kind, each.tensor, each.ranks, each.what) for each in findings)


def test_shares_come_to_what_one_judge_comes_to():
    at_once, verdict = judge(job()), whole(shares(job()))
    found = list(itertools.chain(*(one.findings for one in verdict.folds)))
    assert plain(found) == plain(at_once.findings) and len(found) > 25
    assert {each.kind for each in found} == {"differs", "absent", "non-finite", "incomplete"}
    assert (verdict.count, verdict.comparisons) == (len(found), at_once.comparisons)
    assert verdict.tensors == 82
    assert verdict.uncompared == {"nothing says which ranks hold the same": (2, "odd")}
    assert verdict.slowest == (WORLD - 1) / 1e9


def test_findings_that_do_not_travel_are_counted():
    verdict = whole(shares(job()), most=6)
    (ups,) = [one for one in verdict.folds if one.findings[0].kind == "differs"]
    assert len(ups.findings) < 20 and (ups.count, ups.names, ups.ranks) == (20, 20, (2,))
    assert ups.findings[0].sides.one == (2,)
    assert whole(shares(job()), most=1).count == verdict.count == whole(shares(job())).count


def test_the_first_of_a_cause_knows_where_to_look_whoever_judged_it():
    for verdict in (whole(shares(job())), shares([own for own in job()])[0]):
        differing = [one for one in verdict.folds if one.findings[0].kind == "differs"]
        assert all(one.findings[0].sides is not None for one in differing[:3])


def test_a_rank_that_comes_to_no_verdict_stops_all():
    verdicts = shares(job())
    verdicts[3] = None
    assert whole(verdicts) is None


@pytest.mark.parametrize("ranks", [EVERYONE, EVERYONE[:-1]])
def test_a_pattern_that_no_rank_has_a_name_for_is_told(ranks):
    verdicts = shares(job(), lambda rank: ["no.*"] if rank in ranks else [])
    assert whole(verdicts).unheard == (("no.*",) if ranks == EVERYONE else ())


def test_a_sound_verdict_has_no_details():
    sound = {"w": record(groups=Groups((0,), (0,)))}
    verdict = of_share([Sender(1).messages(sound)[0]], Receiver(1).read)
    assert verdict.bounded(5) == b"" and verdict.tensors == 1 and verdict.comparisons > 0
    assert dataclasses.replace(Verdict(), unheard=("a",)).bounded(5) != b""
