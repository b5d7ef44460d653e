"""The limit: engine and scheduler alone in this process, without API server, sockets and client.

    python -m benchmarks.scheduler [--target spyre] [--runner lean] [--profile FILE]

Prints a Markdown table: for each batch and prompt, in µs of processor time per step, the scheduler
(`schedule` and `update`), the runner, what the simulation adds around them, and the step as a
whole; and how many virtual seconds per second each would allow at 50 ms a step. ``--profile``
saves cProfile's statistics of the loop, for `python -m pstats`; the table then tells less, since
profiling costs time.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from sendnn_bench import models
from server_plugin.sim import host_times

BATCHES = (1, 8, 32)
PROMPTS = (512, 4096)
HEAD = ("batch", "prompt", "scheduler", "runner", "simulation", "step", "limit", "engine")
RUNNER_PHASES = ("prepare", "mock", "sample")
SCHEDULER_PHASES = ("schedule", "update")


def use_cpu_time() -> None:
    """Let the phases of a step be measured in this thread's processor time.

    On a machine that does other things as well, wall time would tell of those.
    """
    host_times.time = SimpleNamespace(perf_counter_ns=time.thread_time_ns)  # type: ignore[assignment]


def make_engine(target: str, runner: str) -> Any:
    """vLLM's EngineCore with the simulation installed, on a free clock."""
    os.environ |= {
        "SENDNN_INFERENCE_SIM_MODE": "1",
        "SENDNN_INFERENCE_SIM_TARGET": target,
        "SENDNN_INFERENCE_SIM_RUNNER": runner,
        "SENDNN_INFERENCE_SIM_CLOCK": "free",
        "SENDNN_INFERENCE_SIM_METRICS_FILE": "",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    if target == "stock":
        os.environ["VLLM_PLUGINS"] = "sendnn_bench_sim"
    from vllm.engine.arg_utils import EngineArgs
    from vllm.plugins import load_general_plugins
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor

    load_general_plugins()
    config = EngineArgs(
        model=models.resolve(models.BUILTIN[0]), max_model_len=8192, max_num_seqs=max(BATCHES)
    ).create_engine_config()
    return EngineCore(config, Executor.get_class(config), log_stats=False)


def add(engine: Any, name: str, token: int, prompt: int, output: int) -> None:
    """A request of equal prompt tokens, with an injected output length as the client's have."""
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    params = SamplingParams(
        max_tokens=output,
        ignore_eos=True,
        temperature=0.0,
        extra_args={"sendnn_sim_output_tokens": output},
    )
    request, wave = engine.preprocess_add_request(
        EngineCoreRequest(
            request_id=name,
            prompt_token_ids=[token] * prompt,
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=name,
            data_parallel_rank=None,
        )
    )
    engine.add_request(request, wave)


def measure(engine: Any, batch: int, prompt: int, output: int) -> tuple[str, ...]:
    """Run one load to its end; a row of the table."""
    sim = engine.scheduler.sim
    for number in range(batch):
        add(engine, f"{batch}-{prompt}-{number}", 1000 + number, prompt, output)
    sim.host_times.reset()
    steps_before, virtual_before_ns = sim.recorder.steps, sim.clock.now_ns
    began_s = time.thread_time()
    while engine.scheduler.has_requests():
        engine.step_fn()
        engine.post_step(True)
    cpu_s = time.thread_time() - began_s
    steps = sim.recorder.steps - steps_before
    virtual_s = (sim.clock.now_ns - virtual_before_ns) / 1e9
    host = {name: facts["total_s"] for name, facts in sim.host_times.summary().items()}
    scheduler_s = sum(host[phase] for phase in SCHEDULER_PHASES)
    runner_s = sum(host.get(phase, 0.0) for phase in RUNNER_PHASES)
    parts_s = (scheduler_s, runner_s, cpu_s - scheduler_s - runner_s, cpu_s)
    return (
        str(batch),
        str(prompt),
        *(f"{part_s / steps * 1e6:.0f}" for part_s in parts_s),
        f"{virtual_s / scheduler_s:.0f}",
        f"{virtual_s / cpu_s:.0f}",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--target", default="spyre", choices=("spyre", "stock"))
    parser.add_argument("--runner", default="lean", choices=("lean", "full"))
    parser.add_argument("--output-tokens", type=int, default=200)
    parser.add_argument("--profile", metavar="FILE")
    options = parser.parse_args(argv)
    use_cpu_time()
    engine = make_engine(options.target, options.runner)
    profiler = cProfile.Profile() if options.profile else None
    rows = [HEAD, tuple("---" for _ in HEAD)]
    measure(engine, 1, 64, 10)  # the first steps of an engine are slower
    for batch in BATCHES:
        for prompt in PROMPTS:
            with profiler or nullcontext():
                rows.append(measure(engine, batch, prompt, options.output_tokens))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(f"\ntarget {options.target}, runner {options.runner}; load {os.getloadavg()[0]:.1f}")
    if profiler is not None:
        profiler.dump_stats(options.profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
