"""`sim_metrics.jsonl`: one line per finished request, in the shape of upstream's
`request_metrics.jsonl` (durations in `_seconds` keys), in virtual time."""

from __future__ import annotations

import fcntl
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from server_plugin.sim.clock import NS_PER_S
from server_plugin.sim.recorder import RequestRecord

logger = logging.getLogger(__name__)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def line(record: RequestRecord) -> dict[str, Any]:
    """One request's line. The timestamp is virtual time since 1970, so that no host time enters."""
    finish_ns = record.finish_ns or 0
    tokens = record.token_times_ns
    scheduled_ns = (record.prefill.start_ns or record.decode.start_ns or [finish_ns])[0]
    first_ns, last_ns = (tokens[0], tokens[-1]) if tokens else (finish_ns, finish_ns)
    decode_ns = last_ns - first_ns
    gaps = max(len(tokens) - 1, 1)
    own_decode_ns = sum(record.decode.duration_ns)
    stamp = EPOCH + timedelta(microseconds=finish_ns // 1000)
    return {
        "timestamp": stamp.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3],
        "prefill_interrupt_seconds": (decode_ns - own_decode_ns) / NS_PER_S,
        "decode_only_itl_seconds": own_decode_ns / gaps / NS_PER_S,
        "finish_reason": record.finish_reason,
        "request_id": record.request_id,
        "num_prompt_tokens": record.prompt_tokens,
        "num_generation_tokens": len(tokens),
        "e2e_latency_seconds": (finish_ns - record.arrival_ns) / NS_PER_S,
        "queued_time_seconds": (scheduled_ns - record.arrival_ns) / NS_PER_S,
        "prefill_time_seconds": (first_ns - scheduled_ns) / NS_PER_S,
        "inference_time_seconds": (last_ns - scheduled_ns) / NS_PER_S,
        "decode_time_seconds": decode_ns / NS_PER_S,
        "mean_time_per_output_token_seconds": decode_ns / gaps / NS_PER_S,
    }


class MetricsFile:
    """Appends lines under a lock, so that several servers may share one file.

    A file that cannot be written (disk full) costs its lines, never the engine: the same record
    travels to the client.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._warned = False

    def write(self, record: RequestRecord) -> None:
        """Append one request's line; does nothing where no file is wanted."""
        if self._path is None:
            return
        text = json.dumps(line(record)) + "\n"
        try:
            with open(self._path, "a", encoding="utf-8") as out:
                fcntl.flock(out, fcntl.LOCK_EX)
                out.write(text)
                out.flush()
        except OSError as error:
            if not self._warned:
                logger.warning(
                    "%s cannot be written (%s): lines are missing.", self._path, error.strerror
                )
            self._warned = True
