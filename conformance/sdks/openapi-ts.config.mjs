// Node's own resolution wants the endings of files in imports.
export default {
  input: "openapi.json",
  output: { path: "generated/hey_api", module: { extension: ".js" } },
};
