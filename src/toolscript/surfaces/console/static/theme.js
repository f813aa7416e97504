// Runs before the first paint, so that the page does not flash in the other colours.
try {
  const theme = localStorage.getItem("toolscript.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage is not allowed: the system's colours stay */ }
