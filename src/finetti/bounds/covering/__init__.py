"""From covering numbers to generalization: tools that the bounds of all papers share."""
