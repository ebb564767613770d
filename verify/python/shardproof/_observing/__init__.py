"""`shardproof.observe`: evidence of what a job has in hand at its stages."""
