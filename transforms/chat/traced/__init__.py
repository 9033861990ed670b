"""The fast engine for conversations that differ in their texts alone: a template is evaluated once for all of them."""
