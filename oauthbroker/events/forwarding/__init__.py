"""Forward the events of agents to a receiver: a webhook, or a stream of NATS JetStream."""
