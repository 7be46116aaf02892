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
# # Traffic overview
#
# Load by topic, tenant and operation. `GANTRY_RECORDS` names the directory of traffic records.

# %%
from analytics.jobs.incidents import incidents
from analytics.notebooks.data import opened
from analytics.notebooks.display import Picture, table
from analytics.report import charts, incident_table
from analytics.report.sections import rows
from analytics.transforms import costs, errors, hot_topics, load

traffic = opened()
traffic.start, traffic.end, traffic.every

# %% [markdown]
# ## Load, by protocol

# %%
by_protocol = table(traffic, load.load(traffic.cells, by=("protocol",), every=traffic.every, zone=traffic.zone))
Picture(charts.areas(by_protocol, "requests", "protocol", f"requests per {traffic.per}"))

# %% [markdown]
# ## The busiest topics

# %%
topics = table(traffic, hot_topics.hot_topics(traffic.cells, top=15))
Picture(charts.bars(topics, "topic", "messages", "messages"))

# %%
topics.sort_values("rank")

# %% [markdown]
# ## Errors

# %%
table(traffic, errors.errors(traffic.requests, every=None), order=["requests"], most=15)

# %% [markdown]
# ## Tenants

# %%
table(traffic, costs.costs(traffic.cells), order=["cost"])

# %% [markdown]
# ## Incidents

# %%
found = rows(incident_table.table(incidents(traffic.requests, traffic.connections)), traffic.zone)
Picture(charts.timeline(found, by_protocol))

# %%
found.sort_values("score", ascending=False)[["severity", "kind", "start", "end", "happened"]].head(20)
