// The API for people, from openapi.json. Everything is text: nothing of the document becomes markup.

const METHODS = ["get", "post", "put", "patch", "delete"];

/** An element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** What a schema says, in one line; a named one by its name. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.oneOf ?? schema.anyOf;
  if (options) return options.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items) || "anything"}`;
  return [schema.type].flat().filter(Boolean).join(" or ") || "anything";
}

/** The names of all schemas that this one is made of, each once. */
function parts(schema, schemas, found = new Set()) {
  if (Array.isArray(schema)) schema.forEach((each) => parts(each, schemas, found));
  else if (schema && typeof schema === "object") {
    const name = schema.$ref?.split("/").pop();
    if (name && !found.has(name)) {
      found.add(name);
      parts(schemas[name], schemas, found);
    }
    Object.values(schema).forEach((each) => parts(each, schemas, found));
  }
  return found;
}

function table(rows) {
  const cells = (row) => row.map((text, column) => element("td", {}, column ? text : element("code", {}, text)));
  return element("table", {}, ...rows.map((row) => element("tr", {}, ...cells(row))));
}

function parameters(operation) {
  const rows = (operation.parameters ?? []).map((each) => [
    each.name,
    `${each.in}${each.required ? ", required" : ""}`,
    kind(each.schema),
  ]);
  return rows.length ? [element("h3", {}, "Parameters"), table(rows)] : [];
}

/** The fields of a schema and of all that it is made of. */
function shapes(schema, schemas) {
  const named = [...parts(schema, schemas)].filter((name) => schemas[name]?.properties);
  return named.flatMap((name) => {
    const shape = schemas[name];
    const rows = Object.entries(shape.properties).map(([field, each]) => [
      field,
      kind(each),
      shape.required?.includes(field) ? "required" : "default" in each ? `else ${JSON.stringify(each.default)}` : "",
    ]);
    return [element("h3", {}, name), element("p", {}, shape.description ?? ""), table(rows)];
  });
}

function contents(heading, content, schemas) {
  const schema = Object.values(content ?? {})[0]?.schema;
  if (!schema) return [];
  return [element("h3", {}, `${heading}: ${kind(schema)}`), ...shapes(schema, schemas)];
}

function inside(operation, schemas) {
  const answers = Object.entries(operation.responses ?? {}).filter(([status]) => status.startsWith("2"));
  return element(
    "div",
    { className: "inside" },
    element("p", {}, operation.description ?? ""),
    ...parameters(operation),
    ...contents("Request", operation.requestBody?.content, schemas),
    ...answers.flatMap(([status, answer]) => contents(`Answer ${status}`, answer.content, schemas)),
  );
}

/** One route, whose inside is made when it is opened. */
function route(path, method, operation, schemas) {
  const words = (operation.description ?? operation.summary ?? "").split("\n")[0];
  const made = element(
    "details",
    {},
    element(
      "summary",
      {},
      element("b", { className: `method ${method}` }, method.toUpperCase()),
      element("code", {}, path),
      element("span", {}, words),
    ),
  );
  made.dataset.text = `${method} ${path} ${words}`.toLowerCase();
  made.addEventListener("toggle", () => made.children.length > 1 || made.append(inside(operation, schemas)));
  return made;
}

/** Routes by their noun: the first word behind /api/v1. */
function sections(document_) {
  const schemas = document_.components?.schemas ?? {};
  const nouns = new Map();
  for (const [path, item] of Object.entries(document_.paths)) {
    const noun = path.replace(/^\/api\/v\d+/, "").split("/")[1] || "/";
    for (const method of METHODS.filter((each) => item[each])) {
      if (!nouns.has(noun)) nouns.set(noun, []);
      nouns.get(noun).push(route(path, method, item[method], schemas));
    }
  }
  return [...nouns].sort().map(([noun, routes]) => element("section", {}, element("h2", {}, noun), ...routes));
}

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("section")) {
    const routes = [...section.querySelectorAll("details")];
    for (const each of routes) each.hidden = !words.every((word) => each.dataset.text.includes(word));
    section.hidden = routes.every((each) => each.hidden);
  }
}

async function begin() {
  const place = document.getElementById("routes");
  try {
    const answer = await fetch("schema/openapi.json");
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    const found = await answer.json();
    document.getElementById("title").textContent = `${found.info.title} ${found.info.version}`;
    document.getElementById("about").prepend(`${found.info.description} `);
    place.replaceChildren(...sections(found));
  } catch (error) {
    place.replaceChildren(element("p", {}, `The document cannot be read: ${error.message}`));
  }
}

document.getElementById("search").addEventListener("input", (event) => search(event.target.value));
begin();
