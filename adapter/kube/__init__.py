"""The Kubernetes API: session, credentials, reflectors, discovery, the live scale, leader election, decoded objects."""
