"""A broker in this process: storage below (store), meaning above (broker), behind the core's backend."""
