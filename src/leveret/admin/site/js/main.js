// The start: who is it, then the frame with the page of the address.

import { forgetHistories } from "./chart.js";
import { showLogin } from "./login.js";
import { logOut, resume } from "./session.js";
import { Shell } from "./shell.js";
import { applyTheme } from "./theme.js";

applyTheme();

function enter(user) {
  new Shell(document.body, user, (said) => {
    logOut();
    forgetHistories();
    showLogin(document.body, enter, said);
  });
}

try {
  const user = await resume();
  if (user) enter(user);
  else showLogin(document.body, enter);
} catch (error) {
  showLogin(document.body, enter, `${error.message}.`);
}
