"""What a rank tells the judges where all that describes its tensors is known: digests alone."""

import array
import ctypes

import torch

from .._digests import _digest
from .._holdings._unchanged import Look
from ._rows import Rows

DIGEST_BYTES = 16


class Sent:
    """What this rank tells each judge: sums of rows of its memory."""

    def __init__(self, rows: Rows, said: list[list[list[int]]], padded: dict[int, tuple]):
        """said: for each judge the rows of each digest. padded: of rows the digest that they must
        have."""
        self._rows = rows
        self._ends = [len(each) for each in said]
        every = [of_one for each in said for of_one in each]
        self._from = torch.tensor([row for each in every for row in each], dtype=torch.int64)
        self._to = torch.tensor(
            [number for number, each in enumerate(every) for _ in each], dtype=torch.int64
        )
        self._padded = torch.tensor([*padded], dtype=torch.int64)
        self._padding = _digest.digests_of(
            array.array("Q", (n for each in padded.values() for n in each))
        )

    def messages(self, look: Look) -> list[bytes] | None:
        """None: what there is cannot be right, or cannot be read so."""
        rows = self._rows.read(look)
        if rows is None or not torch.equal(rows[self._padded], self._padding):
            return None
        summed = torch.zeros(sum(self._ends), 2, dtype=torch.int64)
        summed.index_add_(0, self._to, rows[self._from])
        data, at, found = ctypes.string_at(summed.data_ptr(), summed.nbytes), 0, []
        for count in self._ends:
            found.append(data[at : at + DIGEST_BYTES * count])
            at += DIGEST_BYTES * count
        return found
