"""The command line for messages: send, receive, tail, export, import, topics, groups. It is a remoting client of the
port.
"""
