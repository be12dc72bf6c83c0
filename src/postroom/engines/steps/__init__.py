"""The verbs of the contract as steps on one queue: what engines have in common whose steps are Python.

`SteppedEngine` checks the input and has an engine run the step, as one change of one `QueueState`. An
engine keeps the messages of that state in its own way (dicts and heaps, rows of a table) and says how
a change becomes atomic, durable and known to who waits.
"""
