"""The command `hpa`: plays a file through the model of the stock HPA."""
