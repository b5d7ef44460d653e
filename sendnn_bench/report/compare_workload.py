"""Whether two results are of the same load, and how the two set-ups differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sendnn_bench.results import Result

WORKLOAD_KEYS = {
    "model_id": "model",
    "num_prompts": "number of prompts",
    "request_rate": "request rate",
    "burstiness": "burstiness",
    "max_concurrency": "max concurrency",
    "ramp_up_strategy": "ramp-up strategy",
    "ramp_up_start_rps": "ramp-up start",
    "ramp_up_end_rps": "ramp-up end",
}
"""Keys of vLLM's result that describe the load."""

OTHER_FLAGS = """
    --model --num-prompts --request-rate --burstiness --max-concurrency
    --ramp-up-strategy --ramp-up-start-rps --ramp-up-end-rps
    --base-url --host --port --endpoint --backend --header --insecure --ready-check-timeout-sec
    --served-model-name --tokenizer --tokenizer-mode --trust-remote-code
    --save-result --save-detailed --append-result --result-dir --result-filename --metadata --label
    --percentile-metrics --metric-percentiles --goodput --disable-tqdm --profile --num-warmups
    --plot-timeline --plot-dataset-stats --timeline-itl-thresholds
    --timeline --detailed-timeline --decode-thresholds --describe-metrics --verbose -v
"""
"""Flags that are compared by key, or that leave the load as it is."""

SETUP_KEYS = ("mode", "target", "start", "cost_model", "settings", "limits", "versions")
"""Parts of our own block that describe what served the load."""

SHOWN = 8
"""Differences named one by one; a long list hides the first."""


def workload_differences(base: Result, other: Result) -> list[str]:
    """Why the two runs are not of the same load; empty where they are, as far as files tell."""
    return [
        *_by_key(base, other),
        *_by_flag(base, other),
        *_by_length(base, other, "input_lens", "prompt"),
        *_by_length(base, other, "output_lens", "output"),
        *_by_end(base, other),
    ]


def setup_differences(base: Result, other: Result) -> list[str]:
    """What served the two loads differently; such differences are what one compares."""
    pairs = _flat({key: base.block.get(key) for key in SETUP_KEYS})
    others = _flat({key: other.block.get(key) for key in SETUP_KEYS})
    names = [name for name in {**pairs, **others} if pairs.get(name) != others.get(name)]
    found = [f"{name}: {_show(pairs, name)} and {_show(others, name)}" for name in names[:SHOWN]]
    if len(names) > SHOWN:
        found.append(f"and {len(names) - SHOWN} more")
    return found


def paired(base: Result, other: Result) -> bool:
    """True where both results have the same requests in the same order."""
    lengths = [result.data.get("input_lens") for result in (base, other)]
    return lengths[0] is not None and lengths[0] == lengths[1]


def _by_key(base: Result, other: Result) -> Iterator[str]:
    for key, name in WORKLOAD_KEYS.items():
        one, two = base.data.get(key), other.data.get(key)
        if one != two:
            yield f"{name}: {_text(one)} and {_text(two)}"


def _by_flag(base: Result, other: Result) -> Iterator[str]:
    """Data set, seed and the like, which vLLM's result does not name."""
    commands = [result.block.get("command") for result in (base, other)]
    if commands[0] is None or commands[1] is None:
        return
    passed_over = OTHER_FLAGS.split()
    one, two = (_flags(command) for command in commands if command is not None)
    for flag in sorted({**one, **two}):
        if flag not in passed_over and one.get(flag) != two.get(flag):
            yield f"{flag}: {_text(one.get(flag))} and {_text(two.get(flag))}"


def _by_length(base: Result, other: Result, column: str, name: str) -> Iterator[str]:
    one, two = base.data.get(column), other.data.get(column)
    if not isinstance(one, list) or not isinstance(two, list):
        return
    if len(one) != len(two):
        yield f"requests: {len(one)} and {len(two)}"
        return
    count = sum(left != right for left, right in zip(one, two, strict=True))
    if count:
        yield f"{name} lengths: {count} of {len(one)} requests have another one"


def _by_end(base: Result, other: Result) -> Iterator[str]:
    for result in (base, other):
        if result.block.get("partial"):
            yield f"{result.path} is of a run that did not reach its end"
        failed = result.data.get("failed")
        if failed:
            yield f"{result.path}: {failed} requests failed"


def _flags(command: Sequence[str]) -> dict[str, str]:
    """Flags of a command line with their values; `--a=b` and `--a b` are the same."""
    found: dict[str, str] = {}
    flag = ""
    for word in command:
        if word.startswith("-") and not _is_number(word):
            flag, _, value = word.partition("=")
            flag = flag.replace("_", "-")
            found[flag] = value
        elif flag:
            found[flag] = f"{found[flag]} {word}".strip()
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    found: dict[str, Any] = {}
    for key, part in value.items():
        found |= _flat(part, f"{name}.{key}" if name else str(key))
    return found


def _show(values: Mapping[str, Any], name: str) -> str:
    return _text(values.get(name))


def _text(value: Any) -> str:
    text = "not set" if value is None else ("set" if value == "" else str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
