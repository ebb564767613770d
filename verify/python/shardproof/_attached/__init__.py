"""`python -m shardproof.run`: jobs that are observed without a line of their own."""
