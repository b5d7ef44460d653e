#!/usr/bin/env bash
# Make .venv with everything that demo, tests and linters need. Called by the Makefile.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "set-up: $*" >&2
    exit 1
}

if [ "$(uname -s)" != Linux ]; then
    fail "vLLM has wheels for Linux only; this is $(uname -s). Use a Linux machine or container."
fi

# uv from the PATH, or in a corner of its own: plain pip may pick a torch whose torchvision
# does not import, and a system Python may refuse to install anything.
if ! uv=$(command -v uv); then
    echo "set-up: no uv on PATH, installing it into .uv"
    python3 -m venv .uv || fail "python3 -m venv failed. Install uv or your system's python3-venv."
    .uv/bin/python -m pip install --quiet uv
    uv=.uv/bin/uv
fi

if [ ! -x .venv/bin/python ]; then
    "$uv" venv --quiet --python '>=3.11,<3.13' .venv
fi
"$uv" pip install --python .venv/bin/python --constraint constraints.txt \
    --requirements pyproject.toml --extra spyre --group dev

# sendnn-inference installs a script called sendnn-bench too. Whoever comes last wins, so this
# package is installed after it and by itself.
"$uv" pip install --quiet --python .venv/bin/python --no-deps --reinstall-package sendnn-bench \
    --editable .

ours=$(.venv/bin/python -m sendnn_bench --version)
if ! script=$(.venv/bin/sendnn-bench --version 2>&1) || [ "$script" != "$ours" ]; then
    fail ".venv/bin/sendnn-bench is not this package's ($ours). Another package overwrote it;" \
        "remove .venv and run make again."
fi
echo "set-up: $script is ready in .venv"
