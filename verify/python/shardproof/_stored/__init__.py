"""What a checkpoint on disk, or a manifest of a model, has of each tensor."""
