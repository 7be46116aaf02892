"""Incidents: what hurts, since when, where exactly, and what to do.

Records are summed once to a few compact tables (`tables.py`); detectors work on these, without Spark (`detectors/`);
findings of one cause become one incident (`merging.py`).
"""
