"""The peers' sides of the measurements: run by the Python of the peers' environment, never imported by ours."""
