/** Tokens: who may use this server, what they may do, when they last did; a new one, whose secret is shown once. */
import { del, path, post } from "../../lib/api.js";
import { useLoaded } from "../../lib/data.js";
import { confirm, show } from "../../lib/dialog.js";
import { Icon } from "../../lib/icons.js";
import { Badge, Card, Copy, Empty, Failed } from "../../lib/parts.js";
import { session } from "../../lib/session.js";
import { Table } from "../../lib/table.js";
import { When } from "../../lib/time.js";
import { act } from "../../lib/toasts.js";
import { html, useState } from "../../lib/ui.js";

/** @typedef {{id: string, name: string, role: string, allow: string[], created: number, expires: number | null, last_used: number | null, own: boolean}} Token */

/** @type {Record<string, import("../../lib/parts.js").Tone>} */
const TONES = { viewer: "plain", operator: "info", admin: "warn" };
/** What a role may do, in a sentence. @type {[string, string][]} */
const ROLES = [["viewer", "looks, and changes nothing"], ["operator", "keeps the work flowing: pause, replay, put, move"], ["admin", "also destroys, sees secrets and gives rights"]];
/** Rights that programs ask for beyond the role of a viewer. */
const BEYOND = [["put", "put messages"], ["work", "claim and settle messages"], ["publish", "publish to topics"]];
const SPANS = [["", "never"], ["1d", "in a day"], ["30d", "in 30 days"], ["90d", "in 90 days"], ["365d", "in a year"]];

export function Tokens() {
  const { data, error, reload } = useLoaded("tokens", { every: 10_000, when: (event) => event.name === "audit" });
  if (error && !data) return html`<${Card}><${Failed} error=${error} retry=${reload} /><//>`;
  const make = () => show({ title: "New token", body: New }).then((made) => {
    reload();
    if (made) void show({ title: "Copy it now", body: Secret, props: made });
  });
  /** @param {Token} token */
  const revoke = async (token) => {
    const yes = await confirm({
      title: `Revoke ${token.name}`, verb: "Revoke it", danger: true, scope: `Whoever uses this token of ${token.name} is refused within two seconds, and so are their browsers.`,
      detail: token.own ? html`<strong>It is the one you are using now: you will have to log in with another.</strong>` : undefined,
    });
    if (yes && await act(() => del(path`tokens/${token.id}`), { doing: "revoke it", done: `The token of ${token.name} is revoked.` }) !== undefined) {
      if (token.own) session.set(null);
      reload();
    }
  };
  const add = html`<button class="button small primary" onClick=${make}><${Icon} name="plus" />New token…</button>`;
  const isOpen = data && !data.tokens.some((/** @type {Token} */ each) => each.own);
  return html`${isOpen ? html`<p class="muted">You came in without a token. From the first one on, a server that is <em>started</em> on this store asks everybody for one.</p>` : null}
    <${Card} flush title="Tokens" actions=${add}><${Table} name="Tokens" rows=${data?.tokens ?? []} isLoading=${!data} columns=${columns(revoke)}
      empty=${html`<${Empty} icon="key" title="Nobody has a token yet" command="postroom token create ada --role admin">A token says who uses this server and what they may do. Make one for every person and every program,
        so that the audit has their names and one can be revoked alone.<//>`} /><//>`;
}

/** @param {(token: Token) => void} revoke */
const columns = (revoke) => [
  { id: "name", title: "Whose", sort: (/** @type {Token} */ row) => row.name, cell: (/** @type {Token} */ row) => html`<strong>${row.name}</strong>${row.own ? html` <${Badge} tone="good">you<//>` : null}` },
  { id: "role", title: "Role", cell: (/** @type {Token} */ row) => html`<${Badge} tone=${TONES[row.role] ?? "plain"}>${row.role}<//>${row.allow.length ? html` <span class="faint">and ${row.allow.join(", ")}</span>` : null}` },
  { id: "used", title: "Last used", wide: true, sort: (/** @type {Token} */ row) => row.last_used ?? 0, cell: (/** @type {Token} */ row) => (row.last_used ? html`<${When} at=${row.last_used} />` : html`<span class="faint">never</span>`) },
  { id: "created", title: "Made", wide: true, sort: (/** @type {Token} */ row) => row.created, cell: (/** @type {Token} */ row) => html`<${When} at=${row.created} />` },
  { id: "expires", title: "Ends", wide: true, cell: (/** @type {Token} */ row) => (row.expires ? html`<${When} at=${row.expires} />` : html`<span class="faint">never</span>`) },
  { id: "id", title: "Id", wide: true, cell: (/** @type {Token} */ row) => html`<code class="id">${row.id}</code>` },
  { id: "act", title: "", label: "Actions", align: /** @type {"end"} */ ("end"), cell: (/** @type {Token} */ row) => html`<button class="button small quiet-danger" aria-label=${`Revoke ${row.name}`} onClick=${() => revoke(row)}>Revoke…</button>` },
];

/** @param {{close: (made?: any) => void}} props */
function New({ close }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [allow, setAllow] = useState(/** @type {string[]} */ ([]));
  const [expires, setExpires] = useState("90d");
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const wanted = { name: name.trim(), role, allow: role === "viewer" ? allow : [], ...(expires ? { expires } : {}) };
    const made = await act(() => post("tokens", wanted), { doing: "make a token" });
    if (made) close(made);
  };
  /** @param {string} right */
  const toggle = (right) => setAllow(allow.includes(right) ? allow.filter((each) => each !== right) : [...allow, right]);
  return html`<form class="dialog-form" onSubmit=${submit}>
    <label class="field"><span>Whose <em>a person or a program; stands in the audit</em></span><input autofocus required maxlength="200" autocomplete="off" value=${name} onInput=${(/** @type {any} */ e) => setName(e.target.value)} /></label>
    <fieldset class="choices"><legend>Role</legend>${ROLES.map(([each, words]) => html`<label key=${each} class="check"><input type="radio" name="role" value=${each} checked=${role === each} onChange=${() => setRole(each)} /><span><strong>${each}</strong> <span class="muted">${words}</span></span></label>`)}</fieldset>
    ${role === "viewer" ? html`<fieldset class="choices"><legend>And may, for a program</legend>${BEYOND.map(([each, words]) => html`<label key=${each} class="check"><input type="checkbox" checked=${allow.includes(each)} onChange=${() => toggle(each)} />${words}</label>`)}</fieldset>` : null}
    <label class="field"><span>Ends</span><select value=${expires} onChange=${(/** @type {any} */ e) => setExpires(e.target.value)}>${SPANS.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>
    <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class="button primary" disabled=${!name.trim()}>Make it</button></footer></form>`;
}

/** @param {{token: Token, secret: string, close: () => void}} props */
const Secret = ({ token, secret, close }) => html`<div class="dialog-body">
  <p>This is the token of <strong>${token.name}</strong> (${token.role}). Only its hash is kept: it is not shown again.</p>
  <div class="secret"><code>${secret}</code><${Copy} text=${secret} words="Copy the token" /></div>
  <footer class="dialog-foot"><button class="button primary" autofocus onClick=${() => close()}>I have it</button></footer></div>`;
