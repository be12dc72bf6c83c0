"""A marketplace on a queue matrix: four kinds of workers, seven queues, and everything that goes wrong."""
