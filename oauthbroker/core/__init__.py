"""What every folder may use: errors, secrets, time and chance, and small tools of asyncio. Imports no other folder."""
