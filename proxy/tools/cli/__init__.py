"""The command line of a user: send, receive, look, carry; a remoting client of the port, whatever is behind it."""
