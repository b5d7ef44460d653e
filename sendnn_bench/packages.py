"""What is installed, by metadata alone: versions, requirements, vLLM plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points

from packaging.requirements import Requirement

LOOKED_AT = ("sendnn-bench", "vllm", "sendnn-inference", "torch", "torchvision", "transformers")
"""Packages whose versions must fit; each is asked what it requires of the others."""


PLUGIN_GROUPS = ("vllm.general_plugins", "vllm.endpoint_plugins", "vllm.platform_plugins")
"""Groups of entry points through which vLLM finds the simulator."""


@dataclass(frozen=True)
class Installed:
    """A picture of an environment: `versions` and `requires` by package, `plugins` by group."""

    versions: Mapping[str, str]
    requires: Mapping[str, tuple[str, ...]]
    plugins: Mapping[str, tuple[str, ...]]

    def has(self, name: str) -> bool:
        """True where the package is installed."""
        return name in self.versions

    @classmethod
    def here(cls) -> Installed:
        """The environment of this process."""
        found = {name: dist for name in LOOKED_AT if (dist := _find(name)) is not None}
        plugins = {
            group: tuple(sorted(entry.name for entry in entry_points(group=group)))
            for group in PLUGIN_GROUPS
        }
        return cls(
            versions={name: dist.version for name, dist in found.items()},
            requires={name: tuple(dist.requires or ()) for name, dist in found.items()},
            plugins=plugins,
        )


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def conflicts(installed: Installed) -> list[str]:
    """Requirements among the packages looked at that the installed versions do not meet."""
    found = []
    for owner, lines in installed.requires.items():
        for requirement in map(Requirement, lines):
            version = installed.versions.get(requirement.name)
            if version is None or not _applies(requirement):
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                found.append(
                    f"{owner} {installed.versions[owner]} needs "
                    f"{requirement.name}{requirement.specifier}, installed is {version}"
                )
    return found


def _applies(requirement: Requirement) -> bool:
    """Extras are looked at too: what is installed must fit whoever asked for it."""
    marker = requirement.marker
    if marker is None:
        return True
    extras = ("", "spyre")
    return any(marker.evaluate({"extra": extra}) for extra in extras)
