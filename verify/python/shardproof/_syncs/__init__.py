"""Seals and manifests of live models, and the log of what a trainer sent to engines."""
