"""SQL92 message filters: the grammar and the values of RocketMQ's SelectorParser.

A compiled expression is a function from properties to True, False or None (unknown). A property is a string or missing;
it is converted to a number or a boolean if it is compared with one. An evaluation in which the conversion fails raises:
such a message does not match.
"""
