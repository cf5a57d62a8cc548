"""What operators see and do on the pages of `/admin`: overview, actions, gauges, sign-in."""
