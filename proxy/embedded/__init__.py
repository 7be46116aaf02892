"""A broker in this process: storage (store), request handling (broker), and the core's backend on top."""
