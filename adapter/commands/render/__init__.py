"""The command `render`: the HPA that fits a policy, and the policy and HPA that take the place of a stock HPA."""
