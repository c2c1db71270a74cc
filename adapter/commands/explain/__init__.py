"""The command `explain`: a policy's decision as a page, from the server's own inputs."""
