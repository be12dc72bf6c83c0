"""The stores behind the contract: one sub-package or module each, opened by room.py by name."""
