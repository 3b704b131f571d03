"""Private knowledge that a team must bring together, by one note each or without any."""
