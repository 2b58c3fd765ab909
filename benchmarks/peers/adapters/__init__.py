"""One file a peer: how it is asked to do each work, in the fastest way that it offers."""
