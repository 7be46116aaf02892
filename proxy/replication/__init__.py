"""State shared between proxies through topics: group members (in the Java proxies' format) and renewals."""
