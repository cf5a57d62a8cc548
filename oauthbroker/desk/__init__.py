"""What people and operators see and do: visits, connections of one's own, and the overview of everything."""
