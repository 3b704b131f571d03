"""Cooperative language tasks as PettingZoo parallel environments with one shared oracle reward."""
