"""Speed beside the peers, learning over seeds, and their results."""
