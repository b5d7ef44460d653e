"""`sendnn-bench sim`: a simulated server for one benchmark, by one command."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from sendnn_bench import own_server
from sendnn_bench.bridge import options as serve_options
from sendnn_bench.command_words import ADDRESS_FLAGS
from sendnn_bench.errors import Interrupted
from sendnn_bench.launch_flags import FLAGS
from sendnn_bench.serve_command import VLLM_HELP, load_client, run_serve
from sendnn_bench.stderr import say

DEFAULT_RESULT_DIR = "results"
LOG_NAME = "sim-server.log"

USAGE = 'sendnn-bench sim [any flag of `sendnn-bench serve`] [--sim-*] [--server-args "FLAGS"]'
ABOUT = """
Start a simulated server, run one benchmark against it, stop it. Flags mean what they mean to
`sendnn-bench serve`, and so to `vllm bench serve`. Those of the simulator go to the server, and so
does what stands in --server-args. --model names the model of both; without it, it is the built-in
one. The server's log is written to --result-dir (default: results).

  sendnn-bench sim --num-prompts 50 --request-rate 2 --server-args "--max-num-seqs 32"
"""


REFUSED = {
    ADDRESS_FLAGS: "names a server, but `sendnn-bench sim` starts its own. Use "
    "`sendnn-bench serve` for a server that runs.",
    own_server.SAVED_RUN_FLAGS: "needs a server like the earlier run's: start it with "
    "`sendnn-bench sim-server`, then use `sendnn-bench serve`.",
}
"""Flags of `serve` that make no sense here, and why."""


def run_sim(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        BenchError: any error of the tree; what was measured before it has been saved.
    """
    if {"-h", "--help", "--help-all"} & set(argv):
        sys.stdout.write(help_text())
        return
    words = own_server.split(argv)
    model, client = own_server.with_model(words.client)
    for flags, why in REFUSED.items():
        own_server.refuse(client, flags, why)
    if own_server.value_of("--result-dir", client) is None:
        client = (*client, "--result-dir", DEFAULT_RESULT_DIR)
    try:
        with own_server.ended_by_sigterm():
            _run(model, words.server, client)
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted before the benchmark began; nothing was measured."
        ) from error


def _run(model: str, server_flags: Sequence[str], client: Sequence[str]) -> None:
    log = Path(own_server.value_of("--result-dir", client) or ".") / LOG_NAME
    serve_options.parse(client)  # ours that are wrong need no server
    with own_server.starting(model, server_flags, log) as server:
        say(f"Starting a simulated server of {model} on {server.base_url} (log: {log})")
        load_client(client)
        waited_s = own_server.wait_until_up(server)
        say(f"Server is up, {waited_s:.0f} s after the client was ready.")
        run_serve([*client, "--base-url", server.base_url])


def help_text() -> str:
    """What `sim` adds; the client's flags as `serve --help` tells them."""
    server = ["options of the server:", f'  {own_server.SERVER_ARGS} "FLAGS"']
    server += _indented("Any flags of `vllm serve`, such as --max-num-seqs 32. Repeatable.")
    for flag in FLAGS:
        server += [f"  {flag.name} {flag.metavar}", *_indented(flag.help)]
    client = serve_options.own_parser().format_help().partition("\n\n")[2]
    return f"Usage: {USAGE}\n{ABOUT}\n" + "\n".join(server) + f"\n\n{client}{VLLM_HELP}"


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, 94, initial_indent=" " * 6, subsequent_indent=" " * 6)
