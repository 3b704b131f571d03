"""Whether teams learn: the first run of a new user, curves over seeds, and a run on real input."""
