"""Where ranks are: on which coordinates of the job's mesh, on which host, with which device."""

import dataclasses
import pickle
import socket

_TOLD_MAX = 4


@dataclasses.dataclass(frozen=True)
class Place:
    """axes: {name: coordinate}."""

    axes: dict[str, int]
    host: str
    device: str

    def __str__(self):
        at = ", ".join(f"{axis} {at}" for axis, at in self.axes.items())
        device = f" with {self.device}" if self.device else ""
        return (f"at {at}, " if at else "") + f"on {self.host}{device}"


def own_place(tensors, axes) -> Place:
    """tensors: Holdings of this rank. axes: what the caller said of the job's mesh, or None."""
    own = [name for name in axes.names if axes.has_own(name)] if axes is not None else []
    found = {name: axes.coordinate(name) for name in own}
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


def shared_by(ranks, places: dict[int, Place]) -> str:
    """The coordinates that these ranks have, and no other rank has."""
    found = []
    for axis in places[ranks[0]].axes if len(ranks) > 1 and ranks[0] in places else ():
        at = places[ranks[0]].axes[axis]
        there = {rank for rank, place in places.items() if place.axes.get(axis) == at}
        if there == set(ranks) and len(there) < len(places):
            found.append(f"{axis} {at}")
    return " and of ".join(found)


def told(ranks, places: dict[int, Place]) -> str:
    """Where each of the first few of these ranks is."""
    known = [rank for rank in ranks if rank in places]
    lines = [f"rank {rank} is {places[rank]}" for rank in known[:_TOLD_MAX]]
    return "; ".join(lines) + ("; ..." if len(known) > _TOLD_MAX else "")
