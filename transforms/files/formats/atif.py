"""Trajectories in ATIF, the Agent Trajectory Interchange Format, as `inputs.traces.atif` reads them."""

from __future__ import annotations

from transforms.traces.session_files import trace_input

FORMAT = trace_input("atif")
