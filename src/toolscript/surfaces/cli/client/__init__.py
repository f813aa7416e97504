"""Where commands get their answers: a session with the running gateway, or with the application opened here."""
