"""Cooperative tasks: one folder per family, one file per task, its page in the module docstring."""
