"""How a dataset is presented: its card, its report, warnings of it, and the code with which trainers read it."""
