"""What makes two points the same: a result with the same name came of the same command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sendnn_bench.command_words import ADDRESS_FLAGS, without
from sendnn_bench.errors import ResultError
from sendnn_bench.launch_flags import METRICS_FILE
from sendnn_bench.packages import Installed
from sendnn_bench.protocol import ServerInfo
from sendnn_bench.results import load
from sendnn_bench.sweep.grid import Point

SHAPING = ("SENDNN_INFERENCE_", "VLLM_DT_")
"""Variables with these prefixes shape what a server does."""

PACKAGES = ("sendnn-bench", "vllm", "sendnn-inference")
SLUG_LENGTH = 80
DIGEST_LENGTH = 10


@dataclass(frozen=True)
class Surroundings:
    """What shapes every point beside its flags: versions, variables, a server that runs already."""

    versions: Mapping[str, str | None]
    environment: Mapping[str, str]
    server: Any = None

    @classmethod
    def here(cls, server: Any = None) -> Surroundings:
        """Those of this process; variables count only for servers that the sweep starts."""
        installed = Installed.here().versions
        environment = {} if server else shaping_variables(os.environ)
        return cls({name: installed.get(name) for name in PACKAGES}, environment, server)


def shaping_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a simulated server reads, in order of their names."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if name.startswith(SHAPING) and name != METRICS_FILE
    }


def server_facts(info: ServerInfo) -> dict[str, Any]:
    """What a server that runs already says of itself, without where it is and where it writes."""
    flags = without(info.flags, ADDRESS_FLAGS)
    settings = {name: value for name, value in info.settings.items() if name != METRICS_FILE}
    return {**asdict(info), "flags": flags, "settings": settings}


def name_of(point: Point, model: str, around: Surroundings) -> str:
    """A file name without suffix: what varies, and a digest of all that shapes the result."""
    whole = {
        "model": model,
        "server": around.server if around.server else point.server_flags,
        "client": point.client_flags,
        "inputs": inputs((*point.server_flags, *point.client_flags)),
        "versions": dict(around.versions),
        "environment": dict(around.environment),
    }
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    slug = re.sub(r"[^A-Za-z0-9.=+-]+", "_", point.label)[:SLUG_LENGTH].strip("_.")
    return f"{slug}-{digest[:DIGEST_LENGTH]}"


def inputs(words: Sequence[str]) -> dict[str, str]:
    """Digest of every file that a command line names: its content shapes the run as well."""
    found = {}
    for word in words:
        path = Path(word.partition("=")[2] if word.startswith("--") else word)
        with contextlib.suppress(OSError):  # no name of a file
            if path.name and path.is_file():
                found[word] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def is_complete(path: Path) -> bool:
    """Whether a result is there, whole, detailed, and of a run in which a request succeeded."""
    if not path.is_file():
        return False
    try:
        result = load(path)
    except ResultError:
        return False
    whole = result.detailed and not result.block.get("partial")
    return whole and bool(result.data.get("completed"))
