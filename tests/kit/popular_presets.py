"""The 25 presets that are asked for most."""

POPULAR = (  # asked for most in public threads, and popular in the largest catalogue of providers
    "google", "microsoft", "slack", "github", "atlassian", "notion", "linear", "hubspot", "salesforce", "shopify",
    "airtable", "intercom", "xero", "intuit", "zendesk", "zoom", "dropbox", "box", "asana", "gitlab", "linkedin",
    "discord", "docusign", "stripe", "figma",
)  # fmt: skip
