"""Two services that tell each other what happened; `python -m examples.two_services` runs both."""
