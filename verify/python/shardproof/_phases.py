"""Names of phases, as `shardproof list phases` has them."""

VALUES = "values"
TRAIN = "train"
MEMORY = "memory"
MEMORY_PLAIN = "memory_plain"
