"""Which ranks are reached along axes, where a process group shows this rank's own group alone."""

import torch
from torch import nn
from torch.distributed.tensor import Shard

from shardproof._holdings._groups import Axes, Statement
from shardproof._judging._places import own_place


def test_a_process_group_says_how_the_others_lie():
    """8 ranks, pp 2 x dp 2 x tp 2: along tp and dp no stage of the pipeline is left."""
    for rank in range(8):
        stage, dp, tp = rank // 4, rank // 2 % 2, rank % 2
        shown = {
            "tp": ((4 * stage + 2 * dp, 4 * stage + 2 * dp + 1),),
            "dp": ((4 * stage + tp, 4 * stage + 2 + tp),),
        }
        of_stage = tuple(range(4 * stage, 4 * stage + 4))
        assert Axes(shown, rank, 8).reached(["tp", "dp"]) == of_stage
        assert Axes(shown, rank, 8).reached(["tp"]) == shown["tp"][0]


def test_groups_that_are_all_said_are_taken_as_they_are():
    axes = Axes({"tp": ((0, 3), (1, 2)), "dp": ((0, 1), (2, 3))}, 2)
    assert axes.reached(["tp"]) == (1, 2)
    assert axes.reached(["tp", "dp"]) == (0, 1, 2, 3)


class Expert:
    allreduce = False


def test_the_ranks_that_have_the_same_plain_tensors_have_other_experts():
    said = Statement(group=[0, 1], rank=0, world_size=2)
    assert said.groups_of("w").alike == (0, 1)
    assert said.groups_of("w", tensor=Expert()) is None


def test_the_layout_of_an_expert_is_along_the_axes_that_were_said():
    expert = nn.Parameter(torch.zeros(4, 2))
    expert.allreduce = False
    layout = {"w": {"ep": Shard(0)}}
    cut = Statement(mesh={"ep": [[0, 1]]}, layout=layout, rank=1, world_size=2).cut_of("w", expert)
    assert (cut.axes, cut.sizes, cut.coordinates, cut.groups.whole) == (("ep",), (2,), (1,), (0, 1))


def test_a_rank_beside_an_axis_has_no_place_on_it():
    axes = Axes({"dp": ((0, 1), (2,)), "pp": ((0, 1, 2, 3),)}, 3)
    assert own_place([], axes).axes == {"pp": 3}
