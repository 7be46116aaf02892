"""`gantry bench`: an open-loop load generator for clusters and proxies, over remoting and gRPC."""
