"""A live model against a checkpoint or a manifest, under a map too."""
