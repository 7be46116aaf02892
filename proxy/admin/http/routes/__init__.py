"""The routes of the HTTP API, one file per subject. They read requests, run operations and present their results."""
