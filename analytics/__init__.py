"""Traffic analytics: questions about traffic records, answered on a laptop or a cluster by the same transforms.

Imports only the records' schema, the model of the traffic rules, and request codes from the rest of the project.
"""
