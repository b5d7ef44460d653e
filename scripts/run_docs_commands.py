"""Check and run the shell commands of README.md and docs/**/*.md.

python -m scripts.run_docs_commands [--server URL] [--start-servers] [--long] [FILE.md ...]

The flags and targets of every command in a ```sh or ```bash block have to exist. The blocks of a
page are then run in their order, in one directory that holds a sample under the name of each
result or profile that they read and no earlier block wrote. A comment before a block says what it
needs:

<!-- needs server -->   run against --server, or the server that an earlier block started
<!-- starts server -->  run with --start-servers, on a free port; ends when the next one starts
<!-- takes long -->     run with --long, in the repository's root
<!-- sets up -->        never run here: `make setup` and CI do

Ports 8000 in the commands stand for the server's own.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts.docs_blocks import (
    NEEDS_SERVER,
    ROOT,
    STARTS_SERVER,
    TAKES_LONG,
    Block,
    blocks,
    commands,
    complaints,
    pages,
)
from sendnn_bench.errors import BenchError
from sendnn_bench.server_process import free_port, running

RESULT = ROOT / "tests" / "timeline" / "data" / "ours.json"
PROFILE = """\
version = 1
name = "sample"
source = "made up for the commands of the docs; not measured"
kind = "constant"

[constant]
prefill_ms = 100.0
decode_ms = 50.0
"""
COMMAND = (
    "sendnn-bench serve --model sim-granite-8b --dataset-name random --random-input-len 512 "
    "--random-output-len 64 --num-prompts 20 --request-rate 2"
)
"""What the sample result says that made it; `serve --from` runs it again."""

LIMITS_S = {"": 200, NEEDS_SERVER: 600, TAKES_LONG: 4 * 3600}
"""Real time that a block may take, by its mark."""

_OUTPUT_FLAGS = {"-o", "--output", "--result-filename"}
_PLACES = ("docs/", "tests/", "/")
"""A file there is the repository's or nobody's: no sample is put under its name."""


@dataclass(frozen=True)
class Means:
    """What a run of blocks may use. ``base_url`` is the server's for blocks that need one."""

    base_url: str = ""
    start_servers: bool = False
    long: bool = False

    def allow(self, block: Block) -> bool:
        """Whether the block can be run with these."""
        return {
            "": True,
            NEEDS_SERVER: bool(self.base_url),
            STARTS_SERVER: self.start_servers,
            TAKES_LONG: self.long,
        }.get(block.mark, False)


@dataclass
class Outcome:
    """What became of a block: whether it ran, and what was wrong."""

    block: Block
    ran: bool = False
    wrong: list[str] = field(default_factory=list)


def run_page(path: Path, means: Means) -> Iterator[Outcome]:
    """Check every block of the page, and run those that ``means`` allow, in one directory."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as server:
        place = Path(directory)
        for name in ("docs", "tests"):
            (place / name).symlink_to(ROOT / name)
        for block in blocks(path):
            outcome = Outcome(block, wrong=complaints(block))
            if not outcome.wrong and means.allow(block):
                outcome.ran = True
                if block.mark == STARTS_SERVER:
                    server.close()
                    wrong, url = start(block, place, server)
                    means = replace(means, base_url=url)
                else:
                    wrong = run(block, place, means.base_url)
                outcome.wrong += [wrong] if wrong else []
            yield outcome


def run(block: Block, place: Path, base_url: str = "") -> str:
    """Run the block; what went wrong, empty where nothing did."""
    put_samples(block, place)
    limit_s = LIMITS_S[block.mark]
    try:
        done = subprocess.run(
            shell(block, base_url),
            cwd=ROOT if block.mark == TAKES_LONG else place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{block.name}: not done after {limit_s} s"
    return f"{block.name}: exit code {done.returncode}\n{done.stderr}" if done.returncode else ""


def start(block: Block, place: Path, stack: ExitStack) -> tuple[str, str]:
    """Start the block's server, which ends with the stack; what went wrong, and its URL."""
    put_samples(block, place)
    base_url = f"http://127.0.0.1:{free_port()}"
    log = place / "server.log"
    server = stack.enter_context(running(shell(block, base_url), base_url, log))
    try:
        server.wait_until_healthy(lambda _waited_s: None)
    except BenchError as error:
        return f"{block.name}: {error}", ""
    return "", base_url


def shell(block: Block, base_url: str) -> list[str]:
    """The block for bash: its `sendnn-bench` is this package's, its port 8000 the server's."""
    python = shlex.quote(sys.executable)
    here = shlex.quote(str(Path(sys.executable).parent))
    port = base_url.rpartition(":")[2]
    serve, sim_server = (f' --base-url "{base_url}"', f" --port {port}") if base_url else ("", "")
    # Another package installs a script of our name; a client in this process sets VLLM_PLUGINS.
    prelude = f"""
export PATH={here}:"$PATH"
unset VLLM_PLUGINS
sendnn-bench() {{
    case "$1" in
    serve) {python} -P -m sendnn_bench "$@"{serve} ;;
    sim-server) exec {python} -P -m sendnn_bench "$@" --host 127.0.0.1{sim_server} ;;
    *) {python} -P -m sendnn_bench "$@" ;;
    esac
}}
"""
    text = block.text
    if base_url:
        text = re.sub(r"\b(127\.0\.0\.1|localhost):8000\b", f"127.0.0.1:{port}", text)
        text = re.sub(r"--port[ =]8000\b", f"--port {port}", text)
    return ["bash", "-euo", "pipefail", "-c", prelude + text]


def put_samples(block: Block, place: Path) -> None:
    """Write a sample under each name that the block reads, where there is no file yet."""
    for name in sample_names(block.text):
        path = place / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PROFILE if path.suffix == ".toml" else sample_result())


def sample_result() -> str:
    """A detailed result that says which command made it."""
    data = json.loads(RESULT.read_text(encoding="utf-8"))
    data["sendnn"]["command"] = COMMAND.split()
    return json.dumps(data)


def sample_names(text: str) -> set[str]:
    """The result and profile files that a block's commands read."""
    found: set[str] = set()
    written: set[str] = set()
    for words in commands(text):
        for before, word in zip(["", *words], words, strict=False):
            if word.endswith((".json", ".toml")) and not word.startswith(_PLACES):
                (written if before in _OUTPUT_FLAGS else found).add(word)
    return found - written


def main(argv: Sequence[str]) -> int:
    """Check and run; the exit code."""
    parser = argparse.ArgumentParser(description="Check and run the commands of the docs.")
    parser.add_argument("pages", nargs="*", type=Path, metavar="FILE.md", help="All without.")
    parser.add_argument("--server", default="", metavar="URL", help="For what needs a server.")
    parser.add_argument("--start-servers", action="store_true", help="Run what starts servers.")
    parser.add_argument("--long", action="store_true", help="Run what takes long.")
    args = parser.parse_args(argv)
    means = Means(args.server, args.start_servers, args.long)
    failed = False
    for page in args.pages or pages():
        for outcome in run_page(page, means):
            said = "wrong" if outcome.wrong else "ran" if outcome.ran else outcome.block.mark
            sys.stdout.write(f"{outcome.block.name}: {said}\n")
            sys.stdout.flush()
            sys.stderr.write("".join(f"{text}\n" for text in outcome.wrong))
            failed = failed or bool(outcome.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
