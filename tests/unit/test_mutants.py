"""Mutants (tests/mutants.txt) apply to the code as it is; tests/run_mutants.py runs the tests that should see them."""

from __future__ import annotations

from run_mutants import MUTANTS, problems


def test_each_mutant_applies_to_one_place_and_there_are_at_least_sixty():
    assert problems() == []


def test_mutant_that_does_not_apply_is_a_problem_and_so_are_too_few():
    gone, many = MUTANTS[0]._replace(old="what is nowhere"), MUTANTS[1]._replace(old="\n")
    where = "its text is {} times in {}; expected once. Write its like."
    lines = problems([gone, many])
    assert lines[0] == "there are 2 mutants; expected at least 60"
    assert lines[1] == f"{gone.name}: {where.format(0, gone.file)}"
    assert lines[2].startswith(f"{many.name}: its text is ") and len(lines) == 3
