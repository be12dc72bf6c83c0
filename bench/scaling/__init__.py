"""What Postroom costs as it grows: `make scaling`, or `python -m bench.scaling --help`."""
