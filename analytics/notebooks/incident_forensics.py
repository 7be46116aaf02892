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
# # Incident forensics
#
# Events between two times. By default of the worst incident that is found; for a span of your own:
# `start, end = datetime.fromisoformat("2026-10-19T14:00+02:00"), datetime.fromisoformat("2026-10-19T14:20+02:00")`

# %%
from datetime import timedelta

from analytics.jobs.incidents import incidents
from analytics.notebooks.data import around, opened
from analytics.notebooks.display import Picture, table
from analytics.report import charts, incident_table
from analytics.report.sections import rows
from analytics.transforms import errors, latency, load, redelivery, sessions

traffic = opened()
found = rows(incident_table.table(incidents(traffic.requests, traffic.connections)), traffic.zone)
start, end = around(traffic, found, minutes=20)
then = traffic.between(start, end)
wider = traffic.between(start - timedelta(hours=1), end + timedelta(hours=1))
start, end

# %% [markdown]
# ## Incidents of this time

# %%
now = found[(found["start"] < end) & (found["end"] > start)]
now.sort_values("score", ascending=False)[["severity", "kind", "start", "end", "happened"]]

# %% [markdown]
# ## Requests and errors, an hour before and after

# %%
around_it = table(traffic, load.load(wider.cells, by=("topic",), every="5 minutes"))
Picture(charts.areas(around_it.dropna(subset=["topic"]), "requests", "topic", "requests per 5 minutes"))

# %%
rates = table(traffic, errors.rates(wider.cells, by=("broker",), every="5 minutes"))
Picture(charts.lines(rates.dropna(subset=["broker"]), "error_rate", "broker", "share of requests", weight="requests"))

# %% [markdown]
# ## Failed requests

# %%
table(traffic, errors.errors(then.requests, every=None), order=["requests"], most=20)

# %% [markdown]
# ## Slow requests

# %%
slow = latency.latency(then.cells, by=("code", "topic", "broker"), every=None).drop("latency")
table(traffic, slow, order=["p99_us"], most=20)

# %% [markdown]
# ## Redelivered messages

# %%
table(traffic, redelivery.redelivery(then.cells, every=None), order=["redelivered"], most=20)

# %% [markdown]
# ## Connections

# %%
churn = table(traffic, sessions.churn(wider.connections, every="5 minutes"))
churn[(churn["closed"] > 0) | (churn["crashed"] > 0)].sort_values("closed", ascending=False).head(20)
