# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Latency investigation
#
# Slow requests: at which broker, since when, and whether the broker or the path to it causes them.

# %%
from pyspark.sql import functions as f

from analytics.jobs.incidents import incidents
from analytics.notebooks.data import opened
from analytics.notebooks.display import Picture, table
from analytics.report import charts, incident_table
from analytics.report.sections import POLLS, rows
from analytics.transforms import end_to_end, latency

traffic = opened()
asked = traffic.cells.where(~f.col("code").isin(*POLLS))

# %% [markdown]
# ## Percentiles by request

# %%
table(traffic, latency.latency(asked, by=("code",), every=None).drop("latency"), order=["p99_us"])

# %% [markdown]
# ## Over time, by broker
#
# A line that rises alone is a broker; all that rise together are the network, or this proxy.

# %%
by_broker = table(traffic, latency.latency(asked, by=("broker",), every=traffic.every, zone=traffic.zone))
Picture(
    charts.lines(by_broker.dropna(subset=["broker"]), "p99_us", "broker", "µs", logarithmic=True, weight="requests")
)

# %% [markdown]
# ## Over time, by request

# %%
by_code = table(traffic, latency.latency(asked, by=("code",), every=traffic.every, zone=traffic.zone))
Picture(charts.lines(by_code, "p99_us", "code", "µs", logarithmic=True, weight="requests"))

# %% [markdown]
# ## Incidents of latency, with their common factor

# %%
found = rows(incident_table.table(incidents(traffic.requests, traffic.connections)), traffic.zone)
found[found["evidence"].str.contains("latency")][["severity", "start", "end", "happened"]]

# %% [markdown]
# ## From the send to the acknowledgement

# %%
table(traffic, end_to_end.end_to_end(traffic.requests, every=None), order=["traces"], most=20)
