"""Two releases of a framework beside each other."""
