import pytest
from torch import nn

from shardproof._holdings import _groups
from shardproof._holdings._groups import Groups, Statement, job_axes
from shardproof._holdings._layout import Placement
from shardproof._mesh import LaidOver, divided, rest_of

torch_shard = pytest.importorskip("torch.distributed.tensor").Shard


def test_what_an_axis_leaves_of_others_has_their_names():
    mesh = {"dp_shard": 4, "cp": 2, "tp": 2}
    assert rest_of(mesh, "ep", LaidOver(2, ("dp_shard",))) == ("dp_shard_mod_ep", 2)
    assert rest_of(mesh, "ep", LaidOver(8, ("cp", "dp_shard"))) == ("dp_shard_cp_mod_ep", 1)


def test_the_axis_is_the_inner_part_of_what_it_divides():
    axes, ranks = divided({"dp_shard": 4, "tp": 2}, {"ep": LaidOver(2, ("dp_shard",))}, ["ep"])
    assert axes == ("dp_shard_mod_ep", "ep", "tp")
    assert ranks.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_over_several_axes_it_takes_the_place_of_the_first():
    laid = {"ep": LaidOver(4, ("pp", "tp"))}
    axes, ranks = divided({"pp": 2, "dp": 3, "tp": 2}, laid, ["ep"])
    assert axes == ("pp_tp_mod_ep", "ep", "dp")
    # Along ep pp is the outer and tp the inner one.
    assert ranks[0, :, 0].tolist() == [0, 1, 6, 7]
    assert ranks.shape == (1, 4, 3)


def test_two_that_divide_different_axes_may_stand_in_one_mesh():
    laid = {"ep": LaidOver(2, ("dp",)), "etp": LaidOver(2, ("tp",)), "x": LaidOver(1, ("tp",))}
    axes, ranks = divided({"dp": 2, "tp": 4}, laid, ["ep", "etp"])
    assert axes == ("dp_mod_ep", "ep", "tp_mod_etp", "etp") and ranks.shape == (1, 2, 2, 2)
    with pytest.raises(ValueError, match="etp and x both divide tp"):
        divided({"dp": 2, "tp": 4}, laid, ["etp", "x"])
    with pytest.raises(ValueError, match="'nothing' is laid over no others here.*ep, etp, x"):
        divided({"dp": 2, "tp": 4}, laid, ["nothing"])


class Mesh:
    """What Statement reads of a DeviceMesh."""

    def __init__(self, axes, ranks):
        self.mesh_dim_names, self.mesh = axes, ranks


SIZES = {"dp_replicate": 2, "dp_shard": 4}
LAID = {"ep": LaidOver(2, ("dp_shard",))}


def statement(rank, **said):
    return Statement(mesh=job_axes(SIZES, LAID, rank), rank=rank, world_size=8, **said)


def test_a_dtensor_of_the_expert_mesh_has_replicas_across_the_whole_job():
    axes, ranks = divided(SIZES, LAID, ["ep"])
    experts = Mesh(axes[1:], ranks[0])  # without dp_replicate, as fully_shard has it
    placed = [Placement("shard", 0), Placement("shard", 0)]
    assert statement(1).groups_on(experts, (0, 1), placed) == Groups(
        (0, 1, 2, 3), (1, 5), tuple(range(8))
    )
    only_ep = [Placement("replicate", 0), Placement("shard", 0)]
    assert statement(1).groups_on(experts, (0, 1), only_ep) == Groups(
        (0, 1), (1, 3, 5, 7), tuple(range(8))
    )


def test_a_plain_tensor_is_cut_along_an_axis_that_is_laid_over_others():
    said = statement(2, layout={"experts.*": {"ep": torch_shard(0)}})
    cut = said.cut_of("experts.w", nn.Parameter(nn.Linear(2, 4).weight.data))
    assert (cut.sizes, cut.coordinates) == ((2,), (0,))
    assert cut.groups == Groups((2, 3), (0, 2, 4, 6), tuple(range(8)), named=True)
    assert said.groups_of("norm") == Groups((2,), tuple(range(8)), named=True)


def test_a_tensor_lies_along_an_axis_or_along_what_divides_it():
    both = {"experts.*": {"ep": torch_shard(0), "dp_shard": torch_shard(1)}}
    with pytest.raises(ValueError, match="ep divides dp_shard: only one can be named"):
        statement(0, layout=both)
    with pytest.raises(ValueError, match="no axis 'tp': the mesh has .*dp_shard_mod_ep, ep"):
        statement(0, layout={"experts.*": {"tp": torch_shard(0)}})


def test_a_mesh_with_names_of_both_says_what_its_own_ranks_say():
    axes, ranks = divided({"dp_shard": 4, "ep": 2}, {}, ())
    placed = [Placement("shard", 0), Placement("replicate", 0)]
    groups = statement(0).groups_on(Mesh(axes, ranks), (0, 0), placed)
    assert groups == Groups((0, 2, 4, 6), (0, 1), tuple(range(8)), shown=True)


def test_axes_are_taken_as_they_are():
    axes = job_axes(SIZES, LAID, 3)
    assert _groups.axes_of(axes, 3) is axes
    assert axes.coordinate("ep") == 1 and axes.coordinate("dp_shard_mod_ep") == 1
    assert axes.view(()) == ("dp_replicate", "dp_shard")
