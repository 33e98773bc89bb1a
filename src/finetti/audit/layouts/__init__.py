"""Which tensor of a checkpoint is which matrix of a layer, and how its blocks are put together."""
