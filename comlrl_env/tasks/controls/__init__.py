"""Controls: tasks that test one part of cooperation only, and that a method must solve before any other."""
