"""The models of what a person writes: one class for each kind of resource."""
