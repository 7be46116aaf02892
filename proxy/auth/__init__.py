"""Authentication and authorization: identities of senders, policies, and the decision before every request."""
