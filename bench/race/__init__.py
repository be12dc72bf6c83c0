"""Postroom beside the field, on equal terms: `make race`, or `python -m bench.race --help`."""
