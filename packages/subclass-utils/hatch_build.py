"""Say where dispatch-core comes from: the sibling folder of a checkout, else the exact version.

A plain `pip install ./packages/subclass-utils` would otherwise ask an index for dispatch-core and
could be given a stranger's package, or another version than the one that lies beside it.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SIBLING = "dispatch-core"


class SiblingDependency(MetadataHookInterface):
    """Fill in the dependencies when metadata is made from this folder."""

    def update(self, metadata: dict[str, Any]) -> None:
        sibling = Path(self.root).resolve().parent / SIBLING
        if (sibling / "pyproject.toml").is_file():
            # pip 23 takes a folder with a hyphen for an archive with a version, and would install
            # what it once built of it for ever: with the dot at the end it builds it anew.
            requirement = f"{SIBLING} @ {sibling.as_uri()}/."
        else:
            requirement = f"{SIBLING}=={metadata['version']}"
        metadata["dependencies"] = ["torch>=2.13", requirement]


class PinnedSdist(BuildHookInterface[Any]):
    """Keep this machine's paths out of an sdist: there the sibling is always pinned.

    hatchling trusts the PKG-INFO of an sdist over this hook, so it has to be right in there.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        dependencies = self.metadata.core.dependencies
        dependencies[:] = [
            f"{SIBLING}=={self.metadata.version}" if line.startswith(f"{SIBLING} @") else line
            for line in dependencies
        ]


def get_metadata_hook() -> type[MetadataHookInterface]:
    """Tell hatchling which of the two classes serves metadata."""
    return SiblingDependency


def get_build_hook() -> type[BuildHookInterface[Any]]:
    """Tell hatchling which of the two classes serves the build of an sdist."""
    return PinnedSdist
