"""`chatmill export`: from the rows of a dataset to the layout of a trainer, without tokenizing anything again."""
