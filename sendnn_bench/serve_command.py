"""`sendnn-bench serve`: its own flags and its help. Fast to import: the run itself is not."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sendnn_bench.bridge import options as own
from sendnn_bench.errors import Interrupted

VLLM_HELP = """
All options of `vllm bench serve` are passed on to it; the ones used most are
  --model --tokenizer --base-url --host --port --endpoint --backend
  --dataset-name --dataset-path --num-prompts --input-len --output-len --seed
  --request-rate --burstiness --max-concurrency --ramp-up-strategy --num-warmups
  --percentile-metrics --metric-percentiles --goodput
  --save-result --save-detailed --append-result --result-dir --result-filename --metadata
`sendnn-bench serve --help-all` shows them all (takes a while: it imports vLLM).

--backend defaults to spyre-chat, which serves /v1/completions and /v1/chat/completions
(--endpoint). Against a simulated server the run takes virtual time, which does not depend on the
speed of this machine; against any other server it takes real time.
"""


def run_serve(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        BenchError: any error of the tree; what was measured before it has been saved.
    """
    reproducer, words = own.split_file(argv, "--replay")
    if reproducer is not None:
        from sendnn_bench.replay import replay

        replay(reproducer, words)
        return
    source, words = own.split_file(words, "--from")
    if source is not None:
        from sendnn_bench.rerun import command_line

        words = command_line(source, words)
    options = own.parse(words)
    if options.help or options.help_all:
        _show_help(everything=options.help_all)
        return
    from sendnn_bench.serve_run import serve

    try:
        serve(options, words)
    except KeyboardInterrupt as error:
        raise Interrupted(
            "interrupted before the benchmark began; nothing was measured."
        ) from error


def load_client(argv: Sequence[str]) -> None:
    """Import vLLM and check the flags ahead of `run_serve`, while a server starts.

    A flag that vLLM does not know ends in vLLM's own message and SystemExit.

    Raises:
        UsageError: a value of our own flags is not allowed.
    """
    from sendnn_bench.serve_run import prepare_vllm

    options = own.parse(argv)
    prepare_vllm(options.verbose)
    from sendnn_bench.bridge import arguments

    arguments.parse(options.vllm_argv)


def _show_help(everything: bool) -> None:
    sys.stdout.write(own.own_parser().format_help())
    if not everything:
        sys.stdout.write(VLLM_HELP)
        return
    from sendnn_bench.serve_run import prepare_vllm

    prepare_vllm(verbose=False)
    from sendnn_bench.bridge.arguments import build_parser

    sys.stdout.write("\n" + build_parser().format_help())
