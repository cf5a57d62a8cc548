"""The graph of a flow tool, the rules that assess its risk, and the approvals of findings."""
