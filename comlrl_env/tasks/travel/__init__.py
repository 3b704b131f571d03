"""Trips that two planners put together."""
