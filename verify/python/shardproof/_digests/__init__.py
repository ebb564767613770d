"""Digests of local memory, by the op on a CPU or a GPU, or by PyTorch."""
