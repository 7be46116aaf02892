"""What a broker does with requests, over the store: sans-io, driven by `handle` and `tick`."""
