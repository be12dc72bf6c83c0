"""The release, as a constant: to read it from the installed metadata would import modules, in any thread."""

__version__ = "0.1.0"
