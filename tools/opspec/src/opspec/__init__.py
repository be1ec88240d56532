"""Read, check and compare operator specs, and generate code from them."""

from opspec._version import __version__

__all__ = ["__version__"]
