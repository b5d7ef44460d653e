"""What a run of `sendnn-bench serve` imports, for the process that such runs are forked from."""

from sendnn_bench.serve_run import prepare_vllm

prepare_vllm(verbose=False)

import sendnn_bench.bridge.arguments  # noqa: E402
import sendnn_bench.bridge.bench  # noqa: E402, F401
