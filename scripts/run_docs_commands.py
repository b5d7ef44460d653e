"""Check and run the shell commands of README.md and docs/*.md.

python scripts/run_docs_commands.py [FILE.md ...]

The flags and targets of every command in a ```sh or ```bash block have to exist. Blocks are then
run, in a directory that holds a sample result under each name that they read, except those after
a comment that says why not: <!-- needs server -->, <!-- sets up --> or <!-- takes long -->.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import typer
import typer.core

from sendnn_bench.bridge.options import own_parser
from sendnn_bench.cli import PASS_THROUGH, app
from sendnn_bench.launch_flags import FLAGS

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "tests" / "timeline" / "data" / "ours.json"
TIMEOUT_S = 60

_BLOCK = re.compile(
    r"^(?:<!-- (?P<why>needs server|sets up|takes long) -->\n+)?```(?:sh|bash)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_SEPARATORS = {"&&", "||", "|", ";", "&"}
_OUTPUT_FLAGS = {"-o", "--output"}


@dataclass(frozen=True)
class Block:
    """A block of shell commands; ``why`` says why it is not run, empty where it is."""

    name: str
    text: str
    why: str


def blocks(path: Path) -> list[Block]:
    """The shell blocks of a page."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(
            name=f"{path.name}:{page.count(chr(10), 0, match.start('text'))}",
            text=match["text"],
            why=match["why"] or "",
        )
        for match in _BLOCK.finditer(page)
    ]


def commands(text: str) -> Iterator[list[str]]:
    """Every command's words, without comments and variables set for it."""
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word in _SEPARATORS:
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word)


def complaints(block: Block) -> list[str]:
    """What is wrong with the block's commands, found without running them."""
    return [
        f"{block.name}: {text}: {shlex.join(words)}"
        for words in commands(block.text)
        for text in _check(words)
    ]


def _check(words: Sequence[str]) -> Iterator[str]:
    program, *rest = words
    check = _PROGRAMS.get(program)
    if check is None:
        yield f"unknown program {program!r}"
    else:
        yield from check(rest)


def _sendnn_bench(words: Sequence[str]) -> Iterator[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    if not words or words[0] not in group.commands:
        yield "no such command of sendnn-bench"
        return
    name, rest = words[0], list(words[1:])
    command = group.commands[name]
    if command.context_settings == PASS_THROUGH:
        yield from _unknown_flags(rest, _passed_through(name))
        return
    try:
        command.make_context(name, rest)
    except Exception as error:  # the parser's own: it has no public base class
        tell = getattr(error, "format_message", error.__str__)
        yield tell()


def _make(words: Sequence[str]) -> Iterator[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in words:
        if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE):
            yield f"no target {target!r} in the Makefile"


def _python(words: Sequence[str]) -> Iterator[str]:
    if words[:1] != ["-m"] or len(words) < 2:
        yield "only `python -m MODULE` is known here"
        return
    if words[1] == "sendnn_bench":
        yield from _sendnn_bench(words[2:])
        return
    path = (ROOT / words[1].replace(".", "/")).with_suffix(".py")
    if not path.is_file():
        yield f"no module {words[1]}"
        return
    yield from _unknown_flags(words[2:], _flags_in(path))


def _vllm(words: Sequence[str]) -> Iterator[str]:
    return _unknown_flags(words[1:], _passed_through("sim-server"))


def _nothing_to_check(_words: Sequence[str]) -> Iterator[str]:
    return iter(())


_PROGRAMS: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
    "sendnn-bench": _sendnn_bench,
    "python": _python,
    "make": _make,
    "vllm": _vllm,
    **dict.fromkeys((".", "cd", "curl", "export", "git"), _nothing_to_check),
}


def _unknown_flags(words: Sequence[str], known: frozenset[str]) -> Iterator[str]:
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("-") and flag not in known:
            yield f"unknown flag {flag}"


@cache
def _passed_through(name: str) -> frozenset[str]:
    """Our flags and vLLM's, read from its source: importing it takes half a minute."""
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    vllm = Path(spec.origin).parent
    if name == "serve":
        ours = set(own_parser()._option_string_actions)
        sources = [vllm / "benchmarks" / "serve.py", *(vllm / "benchmarks").glob("datasets/*.py")]
    else:
        ours = {flag.name for flag in FLAGS}
        sources = [vllm / "engine" / "arg_utils.py", vllm / "entrypoints/openai/cli_args.py"]
    return frozenset(ours.union(*map(_flags_in, sources)))


@cache
def _flags_in(source: Path) -> frozenset[str]:
    """Quoted flags, and fields of dataclasses from which flags are made."""
    text = source.read_text(encoding="utf-8")
    fields = re.findall(r"^    (\w+): ", text, re.MULTILINE)
    flags = re.findall(r"\"(--?[\w-]+)\"", text)
    return frozenset([*flags, *(f"--{field.replace('_', '-')}" for field in fields)])


def sample_names(text: str) -> set[str]:
    """The result files that a block's commands read."""
    found: set[str] = set()
    written: set[str] = set()
    for words in commands(text):
        for before, word in zip(["", *words], words, strict=False):
            if word.endswith(".json"):
                (written if before in _OUTPUT_FLAGS else found).add(word)
    return found - written


def run(block: Block) -> str:
    """Run the block; what went wrong, empty where nothing did."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name in sample_names(block.text):
            shutil.copy(SAMPLE, place / name)
        # Another package installs a script of our name.
        ours = f'sendnn-bench() {{ "{sys.executable}" -P -m sendnn_bench "$@"; }}\n'
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", ours + block.text],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return f"{block.name}: exit code {done.returncode}\n{done.stderr}" if done.returncode else ""


def pages() -> list[Path]:
    """README and the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def main(paths: Sequence[Path]) -> int:
    """Check and run; the exit code."""
    wrong: list[str] = []
    for block in (block for path in paths for block in blocks(path)):
        found = complaints(block)
        if not found and not block.why:
            found = [text for text in [run(block)] if text]
        sys.stdout.write(f"{block.name}: {'wrong' if found else block.why or 'ran'}\n")
        wrong += found
    sys.stderr.write("".join(f"{text}\n" for text in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or pages()))
