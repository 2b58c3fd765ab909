"""Work beside requests: worker processes, rebuilds, what-ifs, exports, retention, webhooks."""
