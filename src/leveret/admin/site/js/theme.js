// Light or dark: the system's choice, unless the reader has made another.

const KEY = "leveret.theme";
const CHOICES = ["system", "light", "dark"];

export function currentTheme() {
  return CHOICES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "system";
}

export function setTheme(theme) {
  localStorage.setItem(KEY, theme);
  applyTheme();
  document.dispatchEvent(new Event("themechange"));
}

export function nextTheme() {
  setTheme(CHOICES[(CHOICES.indexOf(currentTheme()) + 1) % CHOICES.length]);
}

export function applyTheme() {
  const theme = currentTheme();
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
