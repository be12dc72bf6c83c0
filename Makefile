# Everything runs in .venv; tools/setup makes it (and whatever else is missing) on the first call.
# Extra arguments: make run ARGS="--seconds 10", make test ARGS="-k claim".

.DEFAULT_GOAL := help
.PHONY: help setup run test lint types format bench race scaling battle soak oldest screenshots package reference sbom clean

help:    ## this list
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' Makefile | expand -t 16

setup:   ## prepare this machine (every other target does so by itself)
	@bash tools/setup

run: setup   ## the demo, served over HTTP until Ctrl-C
	@.venv/bin/postroom demo $(ARGS)

test: lint types   ## everything that must hold: lint, types, tests
	@bash tools/setup celery56 bench race arq
	@.venv/bin/python -m pytest -n auto --dist worksteal $(ARGS)

lint: setup   ## rules and formatting
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .

types: setup   ## mypy, strict; and the dashboard's scripts by tsc
	@.venv/bin/python -m mypy
	@node_modules/.bin/tsc --project .

format: setup   ## repair what ruff can repair
	@.venv/bin/python -m ruff check --fix .
	@.venv/bin/python -m ruff format .

bench:   ## the measurements
	@bash tools/setup bench
	@.venv/bin/python -m bench $(ARGS)

race:   ## Postroom beside the field: Celery, dramatiq, huey, RQ, arq, taskiq, streaq, procrastinate
	@bash tools/setup race arq
	@.venv/bin/python -m bench.race $(ARGS)

scaling:   ## what it costs with more messages, queues and consumers
	@bash tools/setup race
	@.venv/bin/python -m bench.scaling $(ARGS)

battle: setup   ## everything killed, cut off, frozen and full for an hour, on every store; goes on where it was
	@.venv/bin/python -m tests.battle $(ARGS)
	@.venv/bin/python -m examples.payments --kills 200

soak: setup   ## steady load for half an hour: does anything grow?
	@.venv/bin/python -m tests.battle.soak $(ARGS)

oldest:   ## everything with the oldest Celery that we support, figures of a worker, a flood of events
	@bash tools/setup celery56
	@.venv/bin/python -m tests.celery.figures
	@.venv/bin/python -m tests.events.flood
	@.venv-celery56/bin/python -m tests.battle --only redis-prefork,redis-threads --minutes 2 --state build/battle-oldest
	@.venv-celery56/bin/python -m pytest -p no:cacheprovider tests/celery --deselect tests/celery/test_older.py \
		tests/events/test_delivery.py tests/events/test_outages.py tests/events/test_choices.py tests/events/test_interfaces.py

screenshots: setup   ## pictures of the dashboard, for docs/images
	@.venv/bin/python -m tests.dashboard.pictures docs/images

package:   ## wheel and source in dist/, tried with every extra in an empty venv; types of all public names
	@bash tools/setup package
	@.venv/bin/python -m tests.package.matrix

reference: setup   ## the pages of docs/reference that are made from the code
	@.venv/bin/python tools/reference.py

sbom:   ## dist/postroom.cdx.json: what an installation with all extras consists of
	@bash tools/setup all
	@.venv/bin/python tools/sbom.py dist/postroom.cdx.json

clean:   ## remove everything that can be made again
	rm -rf .venv .venv-celery56 .venv-arq node_modules src/postroom/dashboard/vendor .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
