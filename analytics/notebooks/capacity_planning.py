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
# # Capacity planning
#
# The busy hour, its growth, the day on which it reaches the limit, and the tenants behind it. `Limits` is the capacity
# of one replica: measure it on your machines.

# %%
from analytics.facts import Limits
from analytics.notebooks.data import opened
from analytics.notebooks.display import Picture, table
from analytics.report import charts
from analytics.transforms import capacity, costs, load

traffic = opened()
limits = Limits(replicas=2, headroom=0.6)

# %% [markdown]
# ## The week's rhythm

# %%
over = table(traffic, load.load(traffic.cells, by=("protocol",), every="1 hour", zone=traffic.zone))
Picture(charts.areas(over, "messages", "protocol", "messages per hour"))

# %% [markdown]
# ## The busy hour of each day

# %%
days = table(traffic, capacity.daily(traffic.cells, traffic.zone)).sort_values("time")
Picture(charts.lines(days, "requests_per_s", unit="requests per second"))

# %%
days

# %% [markdown]
# ## Where it goes

# %%
table(traffic, capacity.forecast(traffic.cells, limits, traffic.zone))

# %% [markdown]
# ## Growth by tenant

# %%
bills = table(traffic, costs.costs(traffic.cells, every="1 day", zone=traffic.zone))
Picture(charts.areas(bills, "requests", "tenant", "requests per day"))
