"""Name the packages that have generated code, and where it lies."""

__all__ = ["PACKAGES"]

PACKAGES = {
    "dispatch_core": "dispatch-core/src/dispatch_core/_generated",
    "subclass_utils": "subclass-utils/src/subclass_utils/_generated",
    "guards": "guards/src/guards/_generated",
}
"""Where the generated part of each package lies, below the folder of all packages."""
