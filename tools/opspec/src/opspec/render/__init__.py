"""Render generated files: one module for each target, all from the same operators."""
