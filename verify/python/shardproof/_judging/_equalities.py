"""What was equal when all was right: as long as that is so again, with the values of now, all is
right again."""

import torch

_NONE = torch.zeros(0, 2, dtype=torch.int64, device="cpu")


class Equalities:
    """Between sums of digests, and with digests that are expected. Filled once, asked again and
    again: where one does not hold, it says nothing of what is wrong."""

    def __init__(self):
        self._terms: dict[tuple[int, ...], int] = {}  # numbers of digests that are added up
        self._equal: list[tuple[int, int]] = []
        self._expected: list[tuple[int, int]] = []
        self._alike: list[tuple[int, int]] = []
        self._tables: tuple | None = None

    def add_equal(self, sums: list[tuple[int, ...]]) -> int:
        """\\returns the number of the first sum."""
        first, *others = (self._term(each) for each in sums)
        self._equal += [(first, other) for other in others]
        return first

    def add_expected(self, summed: tuple[int, ...], number: int):
        """number: of the digest that is expected."""
        self._expected.append((self._term(summed), number))

    def add_alike(self, number: int, other: int):
        """Two digests that are expected were the same."""
        self._alike.append((number, other))

    def sums(self, digests: torch.Tensor, expected=_NONE) -> torch.Tensor | None:
        """digests, expected: int64 [n, 2]. \\returns the sums, or None if anything is not equal."""
        if self._tables is None:
            self._tables = self._made()
        count, numbers, terms, equal, wanted, alike = self._tables
        sums = torch.zeros(count, 2, dtype=torch.int64).index_add_(0, terms, digests[numbers])
        holds = (
            torch.equal(sums[equal[0]], sums[equal[1]])
            and torch.equal(sums[wanted[0]], expected[wanted[1]])
            and torch.equal(expected[alike[0]], expected[alike[1]])
        )
        return sums if holds else None

    def _term(self, numbers: tuple[int, ...]) -> int:
        return self._terms.setdefault(numbers, len(self._terms))

    def _made(self):
        numbers = [number for each in self._terms for number in each]
        terms = [term for each, term in self._terms.items() for _ in each]
        pairs = (self._equal, self._expected, self._alike)
        return (
            len(self._terms), torch.tensor(numbers, dtype=torch.int64),
            torch.tensor(terms, dtype=torch.int64),
            *(torch.tensor(each, dtype=torch.int64).view(-1, 2).T for each in pairs),
        )  # fmt: skip
