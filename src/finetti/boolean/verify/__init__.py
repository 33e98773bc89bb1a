"""Whether a network computes a rule, on all of its inputs."""
