"""Settings of every test run."""

import os

# The models of the tests are too small for two threads: waiting for each other costs more than the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
