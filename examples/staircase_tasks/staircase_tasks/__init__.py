"""An environment of another package."""
