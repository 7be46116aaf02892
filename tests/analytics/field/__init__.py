"""Traffic records of incidents that operators of messaging systems reported, to evaluate the detectors.

Written from the reports that docs/analytics.md cites, not from the detectors: see `incidents.py`.
"""
