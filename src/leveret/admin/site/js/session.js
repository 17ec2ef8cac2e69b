// Who is logged in. The credential lives in this tab's sessionStorage and nowhere else: it ends with the tab, and since no
// cookie holds it, no other site can make the browser send it.

import { get, ApiError, setCredential } from "./api.js";

const KEY = "leveret.credential";

export class User {
  constructor(whoami) {
    this.name = whoami.name;
    this.tags = Array.isArray(whoami.tags) ? whoami.tags : String(whoami.tags).split(",").filter(Boolean);
  }
  get isAdministrator() { return this.tags.includes("administrator"); }
  get isMonitor() { return this.isAdministrator || this.tags.includes("monitoring"); }
  get isPolicymaker() { return this.isAdministrator || this.tags.includes("policymaker"); }
}

const encode = (name, password) => btoa(String.fromCharCode(...new TextEncoder().encode(`${name}:${password}`)));

/** The user of the tab, or null if nobody has logged in, or may no more. */
export async function resume() {
  const kept = sessionStorage.getItem(KEY);
  if (kept === null) return null;
  setCredential(kept);
  try {
    return new User(await get("whoami"));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    logOut();
    return null;
  }
}

/** Log in. ApiError 401 with the broker's reason if that is nobody, or nobody who may. */
export async function logIn(name, password) {
  const credential = encode(name, password);
  setCredential(credential);
  try {
    const user = new User(await get("whoami"));
    sessionStorage.setItem(KEY, credential);
    return user;
  } catch (error) {
    setCredential(null);
    throw error;
  }
}

/** Forget the credential. */
export function logOut() {
  sessionStorage.removeItem(KEY);
  setCredential(null);
}
