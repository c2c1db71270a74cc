"""`python -m lab.demo`: a stock HPA on effective load beside a stock CPU HPA, on a real control plane."""
