"""Pages: one HTML file each, which asks the network for nothing."""
