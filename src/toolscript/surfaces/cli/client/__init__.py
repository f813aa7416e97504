"""How commands get answers: from a running gateway, or from the data folder opened here."""
