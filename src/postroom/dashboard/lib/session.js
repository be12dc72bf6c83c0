/** Who looks at this, and what they may do: what would be refused is not offered. */
import { get, Problem, request } from "./api.js";
import { createStore, useStore } from "./store.js";

/** @typedef {{name: string, actions: string[]}} Who */
/** @type {import("./store.js").Store<Who | null | "unknown">} */
export const session = createStore(/** @type {Who | null | "unknown"} */ ("unknown"));

export async function load() {
  try {
    session.set(await get("session"));
  } catch (error) {
    if (error instanceof Problem && error.status === 404) session.set({ name: "local", actions: ALL });
    else if (error instanceof Problem && error.status === 401) session.set(null);
    else throw error;
  }
}

/** Where nobody is asked who they are (an application mounted without tokens), everything but those is open. */
const ALL = ["read", "audit", "raw", "put", "work", "publish", "move", "pause", "replay", "discard", "note", "breaker",
  "schedule", "worker", "sweep", "declare", "purge", "drop", "config"];

/** @param {string} token */
export async function logIn(token) {
  session.set(await request("POST", "session", { headers: { authorization: `Bearer ${token}` } }));
}

export async function logOut() {
  await request("DELETE", "session");
  await load();
}

/** @param {string} action A right, as in the server's roles: "pause", "replay", … */
export function can(action) {
  const who = session.get();
  return who !== null && who !== "unknown" && who.actions.includes(action);
}

/** The same in a component, which is drawn again when it changes. @param {string} action */
export const useCan = (action) => useStore(session, () => can(action));

/** @returns {string} viewer, operator or admin, by what may be done; "" for a hand-made set of rights. */
export function roleName() {
  if (can("purge") && can("drop")) return "admin";
  if (can("replay") && can("pause")) return "operator";
  return can("read") ? "viewer" : "";
}
