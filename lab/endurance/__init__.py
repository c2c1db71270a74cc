"""The long run on the real control plane, and whether anything grows: `python -m lab.endurance`.

Nine services are scaled by the stock controller through the adapter, two companions run beside it. All the time loads
go up and down, pods are replaced, tokens are renewed, connections are cut, servers restart and policies come and go.
Every 30 seconds each process is measured; at the end the trend of each quantity after the warm-up must be flat.
"""
