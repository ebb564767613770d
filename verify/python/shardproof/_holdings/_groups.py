"""Which ranks a tensor is held together with, and which hold the same part of it.

A rank's part of a tensor stands in two groups: the ranks whose parts make up the whole with it, and
those that hold the same part. Both come from what the job has (a DTensor's mesh, a process group),
or from what the caller of `check` says of plain tensors.
"""

import dataclasses
import fnmatch
from collections.abc import Mapping

import torch.distributed as dist

from .._mesh import LaidOver, divided, rest_of
from . import _dtensor
from ._layout import Placement

try:
    from torch.distributed.device_mesh import DeviceMesh
except ImportError:  # a build without distributed
    DeviceMesh = None

# Along these axes of a mesh ranks hold other tensors, under other names.
STAGES = ("pp",)


@dataclasses.dataclass(frozen=True)
class Groups:
    """whole: the ranks whose parts make up the tensor; alike: those that hold the same part;
    members: all that have a part of it or of a replica. This rank is in each. All are sorted.
    shown: they are what the model itself shows; if other groups have the name, nobody said whether
    it is the same tensor there. named: the caller said which axes the job has, so that it is."""

    whole: tuple[int, ...]
    alike: tuple[int, ...]
    members: tuple[int, ...] = ()
    shown: bool = False
    named: bool = False

    def __post_init__(self):
        if not self.members:
            object.__setattr__(self, "members", tuple(sorted({*self.whole, *self.alike})))

    def of_state(self, value, rank) -> "Groups":
        """On this rank, of an optimizer's state that does not lie as its parameter does: a single
        number, a step counter, is the same on all ranks that have a part of the parameter, anything
        else on those that have the same part."""
        if value.numel() == 1:
            return Groups((rank,), self.members, shown=self.shown)
        return self.of_parts(rank)

    def of_parts(self, rank) -> "Groups":
        """Of what belongs to this rank's part of the tensor. If there are other parts, others have
        their own under the same name, which says nothing of replicas."""
        return Groups((rank,), self.alike, shown=self.shown and len(self.whole) == 1)


def is_expert(tensor) -> bool:
    """Whether a parameter says, as Megatron's and DeepSpeed's experts do, that the ranks that have
    the model's other parameters in common have other experts."""
    return getattr(tensor, "allreduce", True) is False


def alone(rank: int) -> Groups:
    return Groups((rank,), (rank,))


def dist_rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


class Axes:
    """A mesh of ranks: for each named axis the groups of ranks along it. names: of the axes that
    multiply to the world; axes that are laid over some of them have groups as well."""

    def __init__(self, groups: dict[str, tuple[tuple[int, ...], ...]], rank: int, size=None):
        """size: how many ranks the job has, if that is known."""
        self.names = tuple(groups)
        self._groups = dict(groups)
        self._size = size
        self._laid_over: list[tuple[frozenset[str], tuple[str, ...]]] = []
        self._rank = rank
        self._reached: dict[tuple[str, ...], tuple[int, ...]] = {}  # asked for every tensor
        self.ranks: set[int] = set()
        for axis, of_axis in groups.items():
            ranks = [each for group in of_axis for each in group]
            self.ranks.update(ranks)
            if len(set(ranks)) != len(ranks):
                raise ValueError(f"axis {axis}: a rank is in two of its groups: {of_axis}")

    def lay_over(self, below, groups: dict[str, tuple[tuple[int, ...], ...]]):
        """below: axes that these ones together take the place of."""
        self._laid_over.append((frozenset(below), tuple(groups)))
        self._groups.update(groups)

    def view(self, names) -> tuple[str, ...]:
        """All axes of the mesh as it is where these names are axes of it.

        \\raises ValueError if some are unknown, or one divides another.
        """
        if unknown := [name for name in names if name not in self._groups]:
            known = ", ".join(self._groups)
            raise ValueError(f"there is no axis {unknown[0]!r}: the mesh has {known}")
        gone, put = set(), []
        for below, own in self._laid_over:
            if named := [name for name in own if name in names]:
                if both := gone & below or below & {*names}:
                    raise ValueError(f"axis {named[0]} divides {min(both)}: only one can be named")
                gone |= below
                put += own
        return (*(axis for axis in self.names if axis not in gone), *put)

    def has(self, names) -> bool:
        """Whether view() takes these names."""
        try:
            return bool(self.view(names))
        except ValueError:
            return False

    def group(self, axis: str) -> tuple[int, ...]:
        """This rank's group along an axis, in the order of coordinates."""
        self.view([axis])
        for group in self._groups[axis]:
            if self._rank in group:
                return group
        raise ValueError(f"axis {axis}: rank {self._rank} is in none of its groups")

    def has_own(self, axis: str) -> bool:
        """Whether this rank is in one of its groups."""
        return any(self._rank in group for group in self._groups[axis])

    def coordinate(self, axis: str) -> int:
        return self.group(axis).index(self._rank)

    def reached(self, axes) -> tuple[int, ...]:
        """The ranks that this one reaches along these axes, itself among them."""
        along = tuple(axes)
        if along not in self._reached:
            self._reached[along] = self._reach(along)
        return self._reached[along]

    def _reach(self, axes) -> tuple[int, ...]:
        found = {self._rank}
        # A process group says only who is in this rank's own group. Those of the other ranks lie as
        # that one does, from where they are on the other axes.
        for axis in (each for each in axes if len(self._groups[each]) == 1):
            moves = [each - self._rank for each in self.group(axis)]
            found = {rank + move for rank in found for move in moves if self._is_there(rank + move)}
        known = [self._groups[axis] for axis in axes if len(self._groups[axis]) > 1]
        new = list(found)
        while new:
            rank = new.pop()
            for group in (each for groups in known for each in groups if rank in each):
                new += [each for each in group if each not in found]
                found.update(group)
        return tuple(sorted(found))

    def _is_there(self, rank: int) -> bool:
        return rank >= 0 and (self._size is None or rank < self._size)


def axis_names(names, count: int) -> tuple[str, ...]:
    """Those of a mesh, or what its axes are called here if it has no names."""
    return tuple(names or (f"axis{number}" for number in range(count)))


def axes_of(mesh, rank: int, size: int | None = None) -> Axes:
    """mesh: a DeviceMesh with names, or {axis: process group, or the groups of ranks along it}, or
    what this returns.

    \\raises ValueError for anything else.
    """
    if isinstance(mesh, Axes):
        return mesh
    if DeviceMesh is not None and isinstance(mesh, DeviceMesh):
        names = axis_names(mesh.mesh_dim_names, mesh.ndim)
        return Axes({name: _along(mesh.mesh, dim) for dim, name in enumerate(names)}, rank, size)
    if isinstance(mesh, Mapping) and all(isinstance(axis, str) for axis in mesh):
        return Axes({axis: _groups_of(value) for axis, value in mesh.items()}, rank, size)
    raise ValueError(
        f"mesh is a {type(mesh).__name__}: expected a DeviceMesh, or a dict from the name of an "
        "axis to the groups of ranks along it"
    )


def job_axes(sizes: dict[str, int], laid_over: dict[str, LaidOver], rank: int) -> Axes:
    """The axes of a mesh that counts its ranks row by row, and those that are laid over some."""
    axes = Axes(_rows(*divided(sizes, laid_over, ())), rank)
    for name, laid in laid_over.items():
        groups = _rows(*divided(sizes, laid_over, [name]))
        own = (rest_of(sizes, name, laid)[0], name)
        axes.lay_over(laid.axes, {axis: groups[axis] for axis in own})
    return axes


def _rows(names, ranks) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {axis: _along(ranks, dim) for dim, axis in enumerate(names)}


def _along(ranks, dim) -> tuple[tuple[int, ...], ...]:
    """ranks: a tensor of ranks. \\returns the groups along one of its dims."""
    rows = ranks.movedim(dim, -1).reshape(-1, ranks.shape[dim])
    return tuple(tuple(row) for row in rows.tolist())


def _groups_of(value) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple(ranks_of(group) for group in value)
    except TypeError:
        return (ranks_of(value),)


def _ranks_at(ranks, place) -> tuple[int, ...]:
    """Those of a tensor of ranks that are at a coordinate; of a dim that has None, all."""
    found = ranks[tuple(slice(None) if at is None else at for at in place)]
    return tuple(sorted(found.reshape(-1).tolist()))


def ranks_of(group) -> tuple[int, ...]:
    """group: a process group or ranks; of what torch gives a rank that is not in a group, none.
    \\raises TypeError, ValueError for anything else."""
    if hasattr(dist, "ProcessGroup") and isinstance(group, dist.ProcessGroup):
        return tuple(dist.get_process_group_ranks(group))
    if hasattr(dist, "GroupMember") and group is dist.GroupMember.NON_GROUP_MEMBER:
        return ()
    ranks = tuple(group)
    if not all(isinstance(rank, int) for rank in ranks):
        raise ValueError(f"{group!r}: expected a process group or a list of ranks")
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"{group!r}: a rank is in it twice")
    return ranks


@dataclasses.dataclass(frozen=True)
class Cut:
    """How a plain tensor is one part of a larger one: axes, a placement on each, and the parts.
    groups is None if nobody said with which ranks it makes that up."""

    axes: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    sizes: tuple[int, ...] = ()
    coordinates: tuple[int, ...] = ()
    groups: Groups | None = None


def _by_pattern(word, value) -> Mapping:
    if value is not None and not isinstance(value, Mapping):
        kind = type(value).__name__
        raise ValueError(
            f"{word} is of type {kind}: expected a dict whose keys are patterns of names"
        )
    return value or {}


class Statement:
    """What the caller of `check` says of plain tensors.

    group: the ranks that have the same plain tensors. groups: the same by pattern of names. mesh:
    the job's axes; along "pp" names differ. layout: by pattern, {axis: Shard(dim)} of a tensor that
    is a part, or "local" of one that is this rank's own. claims: whether what is said of nothing is
    held by the whole world. rank, world_size: those of the default process group.
    """

    def __init__(
        self, group=None, groups=None, mesh=None, layout=None, claims=True, rank=None,
        world_size=None,
    ):  # fmt: skip
        self.rank = dist_rank() if rank is None else rank
        self._world = world() if world_size is None else tuple(range(world_size))
        self.axes = None if mesh is None else axes_of(mesh, self.rank, len(self._world))
        if self.axes is not None and (outside := self.axes.ranks - {*self._world}):
            raise ValueError(f"mesh: the job has no rank {min(outside)}")
        self._group = None if group is None else self._of_job("group", ranks_of(group))
        if self._group is not None and self.rank not in self._group:
            raise ValueError(f"group: rank {self.rank} is not in it: {list(self._group)}")
        self._groups = {
            pattern: self._of_job(f"groups[{pattern!r}]", ranks_of(each))
            for pattern, each in _by_pattern("groups", groups).items()
        }
        self._layout = {
            pattern: self._cuts(pattern, value)
            for pattern, value in _by_pattern("layout", layout).items()
        }
        self._used: set[str] = set()
        self._claims = claims
        self._says_axes = mesh is not None
        self._expert_axes: Axes | None = None
        self._expert_groups: dict[str, tuple[int, ...]] = {}
        self._made: dict[tuple, Groups] = {}  # asked for every tensor
        self._on: dict[tuple, tuple[object, Groups]] = {}  # with the mesh, which stays so long

    def take(self, axes: dict, expert_axes: dict):
        """What the framework itself says of the job's axes, {axis: this rank's process group}, and
        of those along which experts lie: it holds where the caller said nothing."""
        if axes and self.axes is None and self._group is None:
            self.axes = axes_of(axes, self.rank, len(self._world))
        if expert_axes and self._expert_axes is None:
            self._expert_axes = axes_of(expert_axes, self.rank, len(self._world))

    def take_experts(self, groups: dict[str, tuple[int, ...]]):
        """groups: the ranks that have the same experts, by the group_name of their parameters."""
        self._expert_groups = groups

    @property
    def unique_names(self) -> bool:
        """Whether a name means the same tensor on all ranks, those of other stages too."""
        return self.axes is not None and any(axis in STAGES for axis in self.axes.names)

    def is_unique(self, name: str, tensor=None) -> bool:
        """Whether no other tensor of the job has the name. Experts are counted anew on each
        rank."""
        if is_expert(tensor):
            return False
        return self.unique_names and self._match(self._layout, name) != "local"

    def groups_on(self, mesh, coordinates, placements) -> Groups:
        """Of a DTensor: along the axes that cut it lie the ranks that make it up, along the others
        those that have the same part; along those of the job's axes, too, that its mesh lacks."""
        is_cut = [placement.kind.endswith("shard") for placement in placements]
        key = (id(mesh), *is_cut)
        if key not in self._on:
            self._on[key] = (mesh, self._groups_along(mesh, list(coordinates), is_cut))
        return self._on[key][1]

    def _groups_along(self, mesh, own, is_cut) -> Groups:
        whole = _ranks_at(mesh.mesh, [None if cut else at for cut, at in zip(is_cut, own)])
        alike = _ranks_at(mesh.mesh, [at if cut else None for cut, at in zip(is_cut, own)])
        names = self._axes_along(mesh, own)
        if names is None:
            return Groups(whole, alike, _ranks_at(mesh.mesh, [None] * len(own)), shown=True)
        cut = {name for name, cuts in zip(names, is_cut) if cuts}
        rest = [axis for axis in self.axes.view(names) if axis not in STAGES and axis not in cut]
        return Groups(whole, self.axes.reached(rest), self.axes.reached([*cut, *rest]))

    def _axes_along(self, mesh, own) -> tuple[str, ...] | None:
        """The job's axes along which the dims of a mesh lie: by their names, or by the ranks."""
        names = mesh.mesh_dim_names
        if self.axes is None or (names and self.axes.has(names)):
            return names if self.axes is not None else None
        along = {frozenset(self.axes.group(axis)): axis for axis in self.axes.names}
        lines = [
            frozenset(
                _ranks_at(mesh.mesh, [None if dim == each else at for each, at in enumerate(own)])
            )
            for dim in range(len(own))
        ]
        found = tuple(along.get(line) for line in lines)
        return found if None not in found and len(set(found)) == len(found) else None

    def cut_of(self, name: str, tensor) -> Cut | None:
        """How a plain tensor is cut; None if it is whole, or this rank's own."""
        said, axes = self._match(self._layout, name), self.axes
        if said == "local":
            return None
        if not said:
            axes = self._axes_for(tensor)
            said = self._as_megatron(tensor)
            if said is None:
                return None
            if not said:
                return Cut()
        for axis, placement in said.items():
            if not 0 <= placement.dim < tensor.dim():
                raise ValueError(
                    f"layout of {name}: it is cut along dim {placement.dim} on axis {axis}, and "
                    f"has the shape {list(tensor.shape)}"
                )
        own = self._stated_for(name)
        named = self._says_axes and not own and not is_expert(tensor)
        rest = [axis for axis in axes.view(said) if axis not in said and axis not in STAGES]
        members = axes.reached([*said, *rest])
        return Cut(
            tuple(said),
            tuple(said.values()),
            tuple(len(axes.group(axis)) for axis in said),
            tuple(axes.coordinate(axis) for axis in said),
            Groups(axes.reached(said), own or axes.reached(rest), members, named=named),
        )

    def _axes_for(self, tensor) -> Axes | None:
        """The axes that a plain tensor lies along: an expert may have others than the rest."""
        return self._expert_axes if is_expert(tensor) else self.axes

    def _as_megatron(self, tensor) -> dict[str, Placement] | None:
        """What Megatron's layers hang on a parameter: that it is a part along one dim, by tensor
        parallelism. None if it is no part, empty if the job's axis is not known."""
        dim = getattr(tensor, "partition_dim", -1)
        if not getattr(tensor, "tensor_model_parallel", False) or dim < 0:
            return None
        axes = self._axes_for(tensor)
        if axes is None or "tp" not in axes.names:
            return {}
        stride = getattr(tensor, "partition_stride", 1)
        kind = "shard" if stride == 1 else "strided_shard"
        return {"tp": Placement(kind, dim, stride)}

    def groups_of(self, name: str, default=None, tensor=None) -> Groups | None:
        """The groups of a plain tensor that is whole; None if nothing was said and nothing is
        claimed.

        default: ranks that have the same plain tensors, as far as the model itself shows.
        """
        own = self._stated_for(name)
        if self._match(self._layout, name) == "local":
            return self._alike(own or (self.rank,))
        alike, axes = own, self._axes_for(tensor)
        if alike is None and not is_expert(tensor):
            alike = self._group
        named = alike is None and axes is not None and self._says_axes
        if alike is None and axes is not None:
            alike = axes.reached([axis for axis in axes.names if axis not in STAGES])
        if is_expert(tensor):  # of which nothing is taken for granted
            alike = alike or self._expert_groups.get(getattr(tensor, "group_name", None))
            return None if alike is None else self._alike(alike)
        if alike is None and default is not None:
            return self._alike(default, shown=True)
        if alike is None and self._claims:
            alike = self._world
        return None if alike is None else self._alike(alike, named=named)

    def _alike(self, ranks, shown=False, named=False) -> Groups:
        """Of what is whole on each of these."""
        key = (ranks, shown, named)
        if key not in self._made:
            self._made[key] = Groups((self.rank,), ranks, shown=shown, named=named)
        return self._made[key]

    def of_stretch(self, own: Groups | None, group, owners) -> Groups | None:
        """Of what the ranks `owners` of a group have a stretch each, of a tensor that has the
        groups `own`; None if that cannot be said."""
        if own is None:
            return None
        others = None  # the ranks that have the same stretch
        if set(group) == {*own.alike}:
            others = (self.rank,)
        for axes in (self.axes, self._expert_axes):
            names = axes.names if axes is not None else ()
            if others is None and (along := [n for n in names if {*axes.group(n)} == {*group}]):
                rest = [each for each in names if each not in along and each not in STAGES]
                others = tuple(sorted({*axes.reached(rest)} & {*own.alike}))
        if others is None:
            return None
        moves = [owner - self.rank for owner in owners]
        whole = tuple(sorted(rank + move for rank in own.whole for move in moves))
        members = {rank + move for rank in {*own.whole, *others} for move in moves}
        return Groups(whole, others, tuple(sorted(members)))

    def unused(self) -> list[str]:
        """Patterns that no name matched."""
        return sorted({*self._layout, *self._groups} - self._used)

    def _match(self, table, name):
        for pattern, value in table.items():
            if fnmatch.fnmatchcase(name, pattern):
                self._used.add(pattern)
                return value
        return None

    def _stated_for(self, name) -> tuple[int, ...] | None:
        """The ranks that `groups` names for a tensor that this rank has."""
        ranks = self._match(self._groups, name)
        if ranks is not None and self.rank not in ranks:
            raise ValueError(f"groups: rank {self.rank} has {name}, and is not in {list(ranks)}")
        return ranks

    def _of_job(self, what, ranks) -> tuple[int, ...]:
        if outside := sorted({*ranks} - {*self._world}):
            raise ValueError(f"{what}: the job has no rank {outside[0]}: {list(ranks)}")
        return tuple(sorted(ranks))

    def _cuts(self, pattern, value):
        if isinstance(value, str) and value == "local":
            return "local"
        if _dtensor.is_a("Shard", value) and self.axes is not None:
            cut = [axis for axis in self.axes.names if axis not in STAGES]
            value = {"tp" if "tp" in cut else cut[0]: value} if len(cut) == 1 or "tp" in cut else {}
        if not isinstance(value, Mapping) or not value:
            raise ValueError(
                f'layout[{pattern!r}]: expected "local", or {{axis: Shard(dim)}} with mesh= naming '
                f"the axis, found {value!r}"
            )
        if self.axes is None:
            raise ValueError(f"layout[{pattern!r}]: it names axes, but mesh= was not given")
        cuts = {}
        self.axes.view(value)
        for axis, each in value.items():
            self.axes.group(axis)
            if _dtensor.is_a("Shard", each):
                cuts[axis] = Placement("shard", each.dim)
            elif not _dtensor.is_a("Replicate", each):
                raise ValueError(
                    f"layout[{pattern!r}]: expected Shard(dim) on axis {axis}, found {each!r}"
                )
        return cuts


def world() -> tuple[int, ...]:
    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return tuple(range(size))
