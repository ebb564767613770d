"""Storages: the memory of tensors."""

import itertools

import torch


def storage_of(tensor):
    """None if it has no memory of its own that can be told of."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() and storage.nbytes() else None
    except (RuntimeError, NotImplementedError):
        return None


def local_parts(tensor) -> list:
    """The plain tensors that a tensor is kept in."""
    if tensor is None:
        return []
    parts = getattr(tensor, "_local_tensor", None)  # of a DTensor
    if isinstance(parts, torch.Tensor):
        return local_parts(parts)
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None:
        names = tensor.__tensor_flatten__()[0]
        return list(itertools.chain(*(local_parts(getattr(tensor, name)) for name in names)))
    return [tensor]
