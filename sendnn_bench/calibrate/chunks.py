"""Prefill chunks of sendnn-inference, which tells only their number: size, tokens, context.

As sendnn-inference 2.6.3 lays them out, a prompt of L tokens has n = ceil(L / chunk size) chunks.
All are full but the first, which gives up room to padding at its left, in whole KV blocks, and
the last, which is padded at its right to the end of its block. The prefix cache saves chunks from
the first on. The tkv of a prefill chunk is the length of its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from sendnn_bench.errors import ResultError
from sendnn_bench.metrics import Record
from sendnn_bench.results import Result

BLOCK_TOKENS = 64
"""KV block of a Spyre card; chunk sizes are multiples of it."""


def chunk_size_of(records: Sequence[Record], result: Result) -> int | None:
    """Chunk size in tokens, derived from prompt lengths and chunk counts.

    None where the records tell every chunk's tokens, so that the size is not needed.

    Raises:
        ResultError: several sizes, or none, agree with the counts.
    """
    limits = [_limits(record) for record in records if record.get("chunk_prefill_latencies_s")]
    low = max((low for low, _ in limits), default=1)
    high = min((high for _, high in limits), default=low)
    first = -(-low // BLOCK_TOKENS) * BLOCK_TOKENS
    sizes = [] if high == float("inf") else list(range(first, int(high) + 1, BLOCK_TOKENS))
    powers = [size for size in sizes if size & (size - 1) == 0]
    for candidates in (sizes, powers):
        if len(candidates) == 1:
            return candidates[0]
    if all("chunk_tokens" in record for record in records):
        return None
    raise ResultError(f"{result.path}: {_why(sizes, low, high)} Give it with --chunk-size.")


def _limits(record: Record) -> tuple[int, float]:
    """Least and greatest chunk size with which the prompt has as many chunks as it had."""
    executed = len(record["chunk_prefill_latencies_s"])
    saved = record.get("prefix_cache_hit_pct") or 0.0
    count = round(executed / (1 - saved)) if saved < 1 else executed
    prompt = int(record["tkvs"][0])
    return -(-prompt // count), (prompt - 1) // (count - 1) if count > 1 else float("inf")


def _why(sizes: Sequence[int], low: int, high: float) -> str:
    if high == float("inf"):
        return f"every prompt fits in one prefill chunk, so its size is {low} tokens or more."
    if not sizes:
        return "no chunk size agrees with the prompt lengths and chunk counts."
    return f"the chunk size may be {', '.join(map(str, sizes))} tokens."


def chunks_of(record: Record, executed: int, size: int) -> list[tuple[int, int]]:
    """(chunk tokens, context tokens) of each executed prefill chunk of a request."""
    if not executed:
        return []
    prompt = int(record["tkvs"][0])
    count = max(executed, -(-prompt // size))
    padding = count * size - -(-prompt // BLOCK_TOKENS) * BLOCK_TOKENS
    chunks = []
    for index in range(count - executed, count):
        begin = max(0, index * size - padding)
        chunks.append((min((index + 1) * size - padding, prompt) - begin, begin))
    return chunks
