"""Questions of operators, answered with proofs."""
