// A host of MCP's TypeScript SDK: tests/e2e/test_mcp_typescript.py. It starts the gateway that its arguments name,
// calls a tool and prints a line of JSON, and again for each line of its input.

import { createInterface } from "node:readline";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [elicits, tool, command, ...args] = process.argv.slice(2);
const capabilities = elicits === "elicits" ? { elicitation: { url: {} } } : {};
const client = new Client({ name: "host", version: "1" }, { capabilities });
client.setNotificationHandler(ToolListChangedNotificationSchema, () => console.log(JSON.stringify({ changed: true })));
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

async function call() {
  try {
    const result = await client.callTool({ name: tool, arguments: {} });
    console.log(JSON.stringify({ text: result.content[0].text, isError: result.isError === true }));
  } catch (error) {
    console.log(JSON.stringify({ code: error.code, text: error.message, link: error.elicitations?.[0]?.url }));
  }
}

await call();
for await (const _ of createInterface({ input: process.stdin })) {
  await call();
}
await client.close();
