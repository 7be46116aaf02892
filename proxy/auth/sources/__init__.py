"""Sources of users and policies."""
