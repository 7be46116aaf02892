"""Transforms: questions about traffic, each a pure function from DataFrame to DataFrame, without UDFs.

Most take "traffic": request records, or a roll-up of them (rollup.py), with the same result.
"""
