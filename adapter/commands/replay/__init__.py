"""What would have happened: models of the stock HPA and of services, and the commands that run them."""
