"""The learners; none of them imports another."""
