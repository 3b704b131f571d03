"""Requests that several agents fulfil with calls of their own tools."""
