"""Interior point method over the multipliers of declared rows."""
