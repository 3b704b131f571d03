"""Blueprints that several builders fill cell by cell with text commands."""
