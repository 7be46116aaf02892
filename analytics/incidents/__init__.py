"""Detection of incidents: onset, narrowest common factor, impact, advice.

Records are summed once to a few compact tables (`tables.py`); detectors work on these, without Spark (`detectors/`);
findings of one cause become one incident (`merging.py`).
"""
