"""The fast engine for conversations that are rendered one by one, such as those with tools."""
