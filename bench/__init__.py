"""Measurements of Postroom: `make bench`, or `python -m bench --help`.

measure    what a figure is, and how repeats are taken and summed up
stage      what a trial stands on: a room, a queue for it alone, bodies
report     the table, the machine, JSON
put · claim · work · wake · delay · depth · imports      what is measured, a group each
"""
