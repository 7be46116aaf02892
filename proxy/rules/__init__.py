"""Traffic rules: what operators say about who may send how much where, under which names.

`model` is the rules file and `judge` what it says of a request; both are pure, for whoever wants to apply a file to
traffic of the past. `rules` is what a replica does with it.
"""
