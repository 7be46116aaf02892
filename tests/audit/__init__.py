"""`make audit`: known vulnerabilities, software bills of materials, and the security rules of ruff."""
