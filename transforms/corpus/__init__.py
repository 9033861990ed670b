"""The corpus as a whole: which of its examples are in the dataset, how often, and in which order.

Each task writes one file of its labelled examples, grouped by bucket, with an index of its records. One step reads all
indexes, and writes down for each bucket which records it has. Each bucket reads its block of every file and its own
list, and is the task of all that follows: it orders, packs and writes. Nothing but the names and sizes of files goes
through the runner, and a step that is tried again writes the same bytes.
"""
