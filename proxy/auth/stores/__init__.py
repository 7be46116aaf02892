"""Stores of users and policies that commands and the admin API can change: Gantry's own file, and brokers."""
