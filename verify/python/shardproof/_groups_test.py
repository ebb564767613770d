"""Which ranks are reached along axes, where a process group shows this rank's own group alone."""

from shardproof._groups import Axes


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
