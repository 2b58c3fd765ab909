"""The service under load, beside the same stack that answers without deciding."""
