"""Measurements of Postroom: `make bench`, or `python -m bench --help`.

measure    what a figure is, and how repeats are taken and summed up
goals      what the figures should reach, by engine
stage      what a trial stands on: an engine, a queue for it alone, bodies
report     the table, the machine, JSON
put · claim · work · wake · delay · depth · disk · peers · imports      what is measured, a group each
consumer   a program of its own: the other process of `wake`
"""
