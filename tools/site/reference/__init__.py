"""The reference: pages of the site that are made from the product when the site is built, so that none is kept by hand.

    python -m tools.site.reference build/reference

Each module of this package makes the pages of one part, as Markdown by their path below `reference/`.
"""
