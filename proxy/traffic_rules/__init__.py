"""Traffic rules: what operators say about who may send how much where, under which names.

`model` is the rules file and `judge` what it says of a request; both are pure. `rules` is what a replica does with it.
"""
