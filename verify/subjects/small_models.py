"""Small models with what makes steps differ: normalisation that counts batches, dropout, ties,
modules that only some steps use, caches, a copy that follows. For
--model small_models.py:NAME, with ways_to_train.py."""

import torch
from torch import nn

WORDS, WIDTH = 61, 16


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))


class Model(nn.Module):
    """counts: with BatchNorm. some: a block that only odd steps use. tied: head and embedding.
    caches: keeps the last activations. follows: has a frozen copy of its head that is an average of
    it, as a momentum encoder is."""

    def __init__(
        self, dropout=0.0, counts=False, some=False, tied=False, caches=False, follows=False
    ):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block(dropout) for _ in range(2))
        self.batch_norm = nn.BatchNorm1d(WIDTH) if counts else None
        self.sometimes = Block() if some else None
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        if caches:
            self.register_buffer("cache", None, persistent=False)
            self.register_buffer("last", torch.zeros(WIDTH), persistent=False)
        self.caches = caches
        self.follower = nn.Linear(WIDTH, WORDS, bias=False) if follows else None
        if follows:
            self.follower.requires_grad_(False)

    def forward(self, ids, is_odd):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        if self.batch_norm is not None:
            x = self.batch_norm(x.transpose(1, 2)).transpose(1, 2)
        if self.sometimes is not None and is_odd:
            x = self.sometimes(x)
        if self.caches:
            self.cache = x.detach().clone()
            self.last.copy_(x.detach()[0, -1])
        logits = self.head(x)
        if self.follower is not None:
            with torch.no_grad():
                self.follower.weight.lerp_(self.head.weight, 0.1)
        return logits


def plain():
    return Model()


def tied():
    return Model(tied=True)


def dropout():
    return Model(dropout=0.1)


def batch_norm():
    return Model(counts=True)


def sometimes():
    return Model(some=True)


def caches():
    return Model(caches=True)


def follows():
    return Model(follows=True)


def loss(model, case, step):
    generator = torch.Generator().manual_seed(1000 * case.seed + 100 * case.rank + step)
    ids = torch.randint(WORDS, (2, 8), generator=generator)
    logits = model(ids, is_odd=step % 2 == 1)
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
