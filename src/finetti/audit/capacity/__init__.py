"""What bounds make of measured norms: the network as a chain of blocks, and the papers' classes."""
