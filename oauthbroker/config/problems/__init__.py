"""Problems of a configuration, with their places, and what finds them in spellings and URLs."""
