"""`trimaran tune`: how a deployed model is served best on this machine, by measurement."""
