"""`gantry doctor ENDPOINT`: what a client would meet at an access point, and what to change where that is not well.

It needs nothing but the endpoint, and looks from outside: what answers there may be Gantry, the official proxy, a
broker or a name server. `diagnosis.py` has the checks in their order, `catalogue.py` everything they may find.
"""
