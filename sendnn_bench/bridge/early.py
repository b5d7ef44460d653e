"""The flags of vLLM that are read before vLLM is imported: where the server is, which model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sendnn_bench.bridge.http import Server
from sendnn_bench.errors import UsageError
from sendnn_bench.models import resolve


@dataclass(frozen=True)
class Early:
    """What has to be known before vLLM is imported.

    ``hub_model``: the model's name where vLLM would look for its tokenizer in a model hub.
    """

    server: Server
    keep_trying_s: float
    hub_model: str | None = None


def early(vllm_argv: Sequence[str]) -> Early:
    """Read the few flags of vLLM that say where the server is; wrong ones are left to vLLM."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--base-url", "--base_url")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="8000")
    parser.add_argument("--header", nargs="*", default=[])
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--ready-check-timeout-sec", "--ready_check_timeout_sec", default="0")
    parser.add_argument("--model")
    parser.add_argument("--tokenizer")
    parser.add_argument("--skip-tokenizer-init", "--skip_tokenizer_init", action="store_true")
    parser.add_argument("--served-model-name", "--served_model_name")
    try:
        known, _ = parser.parse_known_args(list(vllm_argv))
        keep_trying_s = float(known.ready_check_timeout_sec)
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(f"{error}. See `sendnn-bench serve --help-all`.") from error
    local = known.tokenizer or known.skip_tokenizer_init or known.served_model_name
    hub = (
        known.model
        if known.model and not local and not Path(resolve(known.model)).exists()
        else None
    )
    return Early(server_of(known), keep_trying_s, hub)


def server_of(args: argparse.Namespace) -> Server:
    """The server that vLLM's flags name."""
    host = f"[{args.host}]" if ":" in args.host else args.host
    pairs = [item.split("=", 1) for item in args.header or [] if "=" in item]
    key = os.environ.get("OPENAI_API_KEY")
    headers = [("Authorization", f"Bearer {key}")] if key else []
    headers += [(name.strip(), value.strip()) for name, value in pairs]
    return Server(
        base_url=(args.base_url or "").rstrip("/") or f"http://{host}:{args.port}",
        headers=tuple(dict(headers).items()),
        insecure=bool(args.insecure),
    )
