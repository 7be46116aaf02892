"""Traffic analytics: questions about the traffic records, answered on a laptop or a cluster by the same transforms.

Of the rest of the project only the records' schema and the model of the traffic rules are imported.
"""
