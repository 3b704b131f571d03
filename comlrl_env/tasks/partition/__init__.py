"""Dividing things among a team without talking."""
