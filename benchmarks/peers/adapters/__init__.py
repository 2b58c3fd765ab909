"""One file per peer: how it does each work, in the fastest way that it offers."""
