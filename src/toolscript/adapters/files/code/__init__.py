"""Source code: functions and classes become chapters and sections."""
