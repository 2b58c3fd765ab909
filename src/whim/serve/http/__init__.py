"""The API: routes and their handlers, keys, limits, metrics, problems, and the service itself."""
