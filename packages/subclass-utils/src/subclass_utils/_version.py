"""The version, the same for all packages of this repository."""

__version__ = "0.1.0"
