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
# # Migration progress
#
# From remoting to gRPC: how far each tenant is, and which clients are left.

# %%
from pyspark.sql import functions as f

from analytics.notebooks.data import opened
from analytics.notebooks.display import Picture, table
from analytics.report import charts
from analytics.transforms import inventory

traffic = opened()

# %% [markdown]
# ## Messages by protocol

# %%
progress = table(traffic, inventory.migration(traffic.requests, every=traffic.every, zone=traffic.zone))
long = progress.melt(["time", "tenant"], ["messages_remoting", "messages_grpc"], "protocol", "messages")
Picture(charts.areas(long, "messages", "protocol", f"messages per {traffic.per}"))

# %% [markdown]
# ## Tenants: the share of their messages that comes by gRPC

# %%
tenants = table(traffic, inventory.migration(traffic.requests, every=None), order=["grpc_share"])
Picture(charts.bars(tenants.dropna(subset=["grpc_share"]), "tenant", "grpc_share", "share of messages by gRPC"))

# %%
tenants

# %% [markdown]
# ## Clients that are still to move, the busiest first

# %%
left = inventory.clients(traffic.requests).where(f.col("protocol") == "remoting")
table(traffic, left, order=["requests"], most=20)

# %% [markdown]
# ## Versions in use

# %%
table(traffic, inventory.versions(traffic.requests), order=["clients"])
