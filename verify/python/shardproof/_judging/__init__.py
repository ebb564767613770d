"""Records of what ranks hold, the ranks that judge them, and what comes of it."""
