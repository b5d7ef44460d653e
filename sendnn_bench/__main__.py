"""`python -m sendnn_bench` is the `sendnn-bench` script."""

from sendnn_bench.cli import main

if __name__ == "__main__":
    main()
