"""Exchange: examples go from the splits that read them to the buckets whose shards have them, by files.

Each split writes one file of its labelled examples, ordered by bucket. Each bucket reads its block of every file, and
is the split of all that follows: it orders, packs and writes. Nothing but descriptions of files goes through the
runner, and a split or a bucket that is tried again writes the same bytes.
"""
