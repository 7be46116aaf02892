"""An hour of traffic, kept always: read from the request counts each second, at no cost per request."""
