"""First-order methods: Bregman steps under budget constraints."""
