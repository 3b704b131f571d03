"""Programs that a team writes together: one agent a helper function, another the function that calls it."""
