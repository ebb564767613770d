"""`shardproof.check`: the calls that look at a model, at once, in turns or in the background."""
