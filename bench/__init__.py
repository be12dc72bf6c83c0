"""Measurements of Postroom: `make bench`, or `python -m bench --help`.

measure    what a figure is, and how repeats are taken and summed up
goals      what the figures should reach, by engine
stage      what a trial stands on: an engine, a queue for it alone, bodies
report     the table, the machine, JSON
put · claim · work · sleep · wake · delay · depth · disk · peers · imports      what is measured, a group each
http · dashboard      the same, of a server, and of a browser in front of it
cost · rivals · pressure · reclaim · purge      the same, of Redis alone
server     a redis-server for a trial, and what it says of itself
systems    who works through jobs in Redis, and how: for `rivals`
consumer · drainer · bystander      programs of their own: the other processes of `wake`, `rivals`, `purge`
"""
