"""Runners: what only one of Beam's runners needs. The launcher imports each module only for its runner."""
