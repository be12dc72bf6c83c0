/** Where tokens are asked for, the first thing one sees. */
import { Icon } from "./icons.js";
import { logIn } from "./session.js";
import { Command } from "./parts.js";
import { html, useState } from "./ui.js";

export function Login() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    try {
      await logIn(token.trim());
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  return html`<main class="login"><form class="card" onSubmit=${submit}>
    <div class="empty-icon"><${Icon} name="key" /></div>
    <h1>Postroom</h1>
    <p class="muted">This server asks for a token. It is sent once; the browser keeps a session of 12 hours that no script can read.</p>
    <label class="field"><span>Token</span>
      <input type="password" autofocus autocomplete="current-password" value=${token} required onInput=${(/** @type {any} */ e) => setToken(e.target.value)} aria-describedby="login-problem" /></label>
    <p id="login-problem" role="alert" class="bad-words">${problem}</p>
    <button class="button primary" type="submit">Log in</button>
    <p class="faint">None yet? An administrator makes one: <${Command} text="postroom token create you --role viewer" /></p>
  </form></main>`;
}
