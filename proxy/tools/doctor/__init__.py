"""`gantry doctor ENDPOINT`: check an access point as its clients see it, and name remedies.

It needs only the endpoint, and checks from outside: behind it may be Gantry, the official proxy, a broker or a name
server. `diagnosis.py` has the checks in their order, `findings.py` all possible findings.
"""
