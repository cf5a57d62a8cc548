"""One user story a file. Flows never import each other; what two of them share is `finish`, below them."""
