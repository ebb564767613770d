"""Where ranks are: on which coordinates of the job's mesh, on which host, with which device."""

import dataclasses
import pickle
import socket


@dataclasses.dataclass(frozen=True)
class Place:
    """axes: {name: coordinate}."""

    axes: dict[str, int]
    host: str
    device: str

    def __str__(self):
        return ", ".join([*(f"{axis} {at}" for axis, at in self.axes.items()), *self._machine])

    @property
    def _machine(self):
        return [self.host, *([self.device] if self.device else [])]


def own_place(tensors, axes) -> Place:
    """tensors: Holdings of this rank. axes: what the caller said of the job's mesh, or None."""
    found = {name: axes.coordinate(name) for name in axes.names} if axes is not None else {}
    devices = {}
    for held in tensors:
        for name, at in zip(held.mesh_names or (), held.coordinates, strict=False):
            found.setdefault(name, at)
        if held.local is not None:
            devices[held.device] = devices.get(held.device, 0) + 1
    return Place(found, socket.gethostname(), max(devices, key=devices.get, default=""))


def packed(place: Place) -> bytes:
    return pickle.dumps((place.axes, place.host, place.device))


def unpacked(data: bytes) -> Place:
    return Place(*pickle.loads(data))


_TOLD_MAX = 4


def where(ranks, places: dict[int, Place]) -> str:
    """What these ranks have in common, as far as that sets them apart from all others; and of a few
    where each is."""
    shared = []
    for axis in next(iter(places.values())).axes if places else ():
        of_ranks = {places[rank].axes.get(axis) for rank in ranks if rank in places}
        if len(of_ranks) != 1:
            continue
        (at,) = of_ranks
        there = {rank for rank, place in places.items() if place.axes.get(axis) == at}
        if at is not None and there == set(ranks) and len(there) < len(places):
            shared.append(f"{axis} {at}")
    told = [f"rank {rank}: {places[rank]}" for rank in ranks[:_TOLD_MAX] if rank in places]
    if len(ranks) > _TOLD_MAX and told:
        told.append("...")
    return "; ".join([*([f"all of {' and of '.join(shared)}"] if shared else []), *told])
