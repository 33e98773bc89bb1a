"""How a trial of each kind of learner runs, and what it records."""
