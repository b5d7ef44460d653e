"""The shell blocks of README and docs: find them, and check their commands without running any."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import typer
import typer.core

from sendnn_bench import own_server
from sendnn_bench.bridge.options import own_parser
from sendnn_bench.cli import PASS_THROUGH, app
from sendnn_bench.errors import BenchError
from sendnn_bench.launch_flags import FLAGS
from sendnn_bench.sweep.command import parser as sweep_parser

ROOT = Path(__file__).parents[1]

NEEDS_SERVER = "needs server"
STARTS_SERVER = "starts server"
SETS_UP = "sets up"
TAKES_LONG = "takes long"
MARKS = (NEEDS_SERVER, STARTS_SERVER, SETS_UP, TAKES_LONG)

_BLOCK = re.compile(
    rf"^(?:<!-- (?P<mark>{'|'.join(MARKS)}) -->\n+)?```(?:sh|bash)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_SEPARATORS = {"&&", "||", "|", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A block of shell commands; ``mark`` says what it needs, empty where that is nothing."""

    name: str
    text: str
    mark: str


def blocks(path: Path) -> list[Block]:
    """The shell blocks of a page."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(
            name=f"{path.name}:{page.count(chr(10), 0, match.start('text'))}",
            text=match["text"],
            mark=match["mark"] or "",
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
    if words and words[0].startswith("-"):
        own = frozenset(flag for parameter in group.params for flag in parameter.opts)
        yield from _unknown_flags(words, own)
        return
    if not words or words[0] not in group.commands:
        yield "no such command of sendnn-bench"
        return
    name, rest = words[0], list(words[1:])
    command = group.commands[name]
    if name in _STARTS_SERVER:
        yield from _with_own_server(name, rest)
        return
    if command.context_settings == PASS_THROUGH:
        yield from _unknown_flags(rest, _passed_through(name))
        return
    try:
        command.make_context(name, rest)
    except Exception as error:  # the parser's own: it has no public base class
        tell = getattr(error, "format_message", error.__str__)
        yield tell()


def _with_own_server(name: str, rest: Sequence[str]) -> Iterator[str]:
    """A command whose words are the client's, the server's, and its own."""
    try:
        words = own_server.split(rest)
    except BenchError as error:
        yield str(error)
        return
    yield from _unknown_flags(words.server, _passed_through("sim-server"))
    yield from _unknown_flags(words.client, _passed_through("serve") | _STARTS_SERVER[name])


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
    **dict.fromkeys((".", "cat", "cd", "curl", "export", "git"), _nothing_to_check),
}


_STARTS_SERVER: dict[str, frozenset[str]] = {
    "sim": frozenset(),
    "sweep": frozenset(sweep_parser()._option_string_actions),
}
"""Commands that start servers, with their own flags."""


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


def pages() -> list[Path]:
    """README, the docs and their examples."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
